"""The scheduler: takes samples in, says what each step computes, and takes its results."""

from __future__ import annotations

from collections.abc import Iterable

from ..batch import Batch, Group, Row, Sampled
from ..config import SchedulerConfig
from ..errors import RequestError
from ..memory.prefix_cache import PrefixCache
from ..messages import Finish, StepStats, Submit, TokenLogprobs
from ..stops import TokenText
from .events import Drawn, Events
from .finish import FinishRules
from .held import Held
from .limits import Limits
from .plan import Plan, row_of
from .planner import Planner
from .task import Task

SHORTEST_GROUP = 32
"""Tokens that rows must have in common to be reported as a group."""


class Scheduler:
    """Decides what runs. Pure: no clock, no I/O, no device; the same calls give the same steps.

    ``next_batch`` and ``commit`` take turns, one batch at a time. ``submit`` and ``abort`` may come
    between any two calls, also while a batch is out: an aborted row of it is dropped when the
    batch is committed, and its pages are freed then. A step computes no more than
    ``max_batched_tokens`` and so never has more rows either.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        cache: PrefixCache,
        *,
        context_length: int,
        eos_ids: Iterable[int],
        text: TokenText,
    ) -> None:
        self._cache = cache
        self._limits = Limits(context_length, cache.n_total * cache.page_size, config.max_waiting)
        self._rules = FinishRules(eos_ids, text)
        self._planner = Planner(config, cache)
        self._running, self._waiting = self._planner.running, self._planner.waiting
        self._alive: dict[str, dict[int, Task]] = {}
        self._out: tuple[Batch, tuple[Task, ...]] | None = None
        self._outbox, self._counters = self._planner.outbox, self._planner.counters
        self._arrivals = 0

    # -- what comes in ---------------------------------------------------------------------------

    def submit(self, submit: Submit, held: Held | None = None) -> None:
        """Takes a sample in. One that cannot run is refused: see ``take_events``.

        Of a sample that is alive already a later epoch takes the place, and any other is ignored.
        ``held`` is what its output is held to.
        """
        alive = self._alive.get(submit.rid, {}).get(submit.choice)
        if alive is not None:
            if submit.epoch <= alive.request.epoch:
                return
            self._abort_task(alive)
        try:
            end = self._limits.end(submit, len(self._waiting) - self._running.n_slots)
        except RequestError as error:
            self._outbox.refuse(submit, error)
            return
        task = Task(submit, end, self._arrivals, self._counters.steps)
        request = task.request
        request.stop_ids = self._rules.stop_ids(
            request.params.ignore_eos, request.params.stop_token_ids
        )
        try:
            first = [] if held is None else held.enter(task)
        except RequestError as error:
            self._outbox.refuse(submit, error)
            return
        self._arrivals += 1
        self._alive.setdefault(submit.rid, {})[submit.choice] = task
        finish = self._rules.before(task)
        for token in first if finish is None else ():
            finish = self._append(task, token)
            task.pending.append(token)
            if finish is not None:
                break
        self._counters.outputs += len(task.pending)
        if finish is None and request.complete:
            finish = Finish("stop")
        if finish is None:
            self._waiting.push(task)
        else:
            self._outbox.open(task)
            self._end(task, finish)

    def abort(self, rid: str) -> None:
        """Ends all samples of a request. Their pages are free at once, or after the step that
        is being computed."""
        for task in list(self._alive.get(rid, {}).values()):
            self._abort_task(task)

    def flush(self) -> bool:
        """Empties the tree, if nothing runs or waits; ``False`` and no change otherwise."""
        if not self.idle:
            return False
        self._cache.flush()
        return True

    # -- what goes out ---------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing runs, waits or is being computed."""
        return not self._running and not self._waiting and self._out is None

    def take_events(self) -> Events:
        """What has happened since the last call, or the last ``commit``."""
        return self._outbox.take()

    def stats(self) -> StepStats:
        """State and counters; the caller adds the times."""
        cache, counters = self._cache, self._counters
        return StepStats(
            steps=counters.steps,
            running=len(self._running),
            waiting=len(self._waiting),
            pages_total=cache.n_total,
            pages_used=cache.n_used,
            pages_evictable=cache.n_evictable,
            pages_free=cache.n_free,
            computed_prompt_tokens=counters.computed_prompt,
            cached_prompt_tokens=counters.cached_prompt,
            output_tokens=counters.outputs,
            pushed_back=counters.pushed_back,
            evicted_pages=cache.evicted,
            drafted_tokens=counters.drafted,
            accepted_tokens=counters.accepted,
        )

    def audit(self) -> None:
        """Raises ``AssertionError`` unless every page has one owner; between steps only."""
        leaving = [task for task in self._out[1] if task.leaving] if self._out else []
        holds = [task.request.hold for task in (*self._running, *leaving)]
        self._cache.audit([hold for hold in holds if hold is not None])

    # -- a step ----------------------------------------------------------------------------------

    def next_batch(self) -> Batch | None:
        """What to compute next; ``None`` if nothing runs or waits. Decoding rows come first, then
        rows that fill in their prompts, then what is admitted, as far as the tokens go."""
        assert self._out is None, "the last batch is to be committed first"
        if self.idle:
            return None
        plan = self._planner.plan()
        self._counters.steps += 1
        return self._send(plan)

    def _send(self, plan: Plan) -> Batch:
        assert plan.stops, "a step must compute something"
        page_size = self._cache.page_size
        tasks = tuple(plan.stops)
        for task in tasks:
            task.in_flight = True
        rows = tuple(row_of(task, stop, page_size) for task, stop in plan.stops.items())
        batch = Batch(self._counters.steps, rows, self._groups(rows))
        self._out = (batch, tasks)
        return batch

    def _groups(self, rows: tuple[Row, ...]) -> tuple[Group, ...]:
        if len(rows) < 2:
            return ()
        holds = [row.request.hold for row in rows]
        runs = self._cache.groups([hold for hold in holds if hold is not None], SHORTEST_GROUP)
        return tuple(Group(run.indices, run.start, run.stop) for run in runs)

    # -- its result ------------------------------------------------------------------------------

    def commit(self, batch: Batch, sampled: Sampled) -> Events:
        """Takes the result of the batch that is out; returns all that has happened."""
        assert self._out is not None
        assert self._out[0] is batch, "batches are committed in order"
        tasks = self._out[1]
        self._out = None
        for index, (task, row) in enumerate(zip(tasks, batch.rows, strict=True)):
            task.in_flight = False
            error = sampled.errors[index]
            if task.leaving:
                self._running.vacate(task)
            elif error is not None:  # its KV is not to be trusted, so it stays out of the tree
                self._retire(task, Finish("error", message=error))
            else:
                self._commit_row(task, row, sampled, index)
        self._waiting.unpark(self._running)
        return self._outbox.take()

    def took(self, batch: Batch, seconds: float) -> None:
        """Tells how long a step took: whether drafts pay depends on it."""
        if self._planner.drafts.on and all(row.sample_from == row.start for row in batch.rows):
            self._planner.drafts.costs.add(batch.n_tokens, seconds)

    def _commit_row(self, task: Task, row: Row, sampled: Sampled, index: int) -> None:
        request = task.request
        assert request.hold is not None
        drawn, finish = None, None
        if row.stop >= request.length:
            if request.length >= task.end:  # nothing is to be generated
                finish = Finish("length")
            else:
                ids = sampled.ids[index]
                drawn, finish = self._take_tokens(task, ids, sampled.logprobs[index])
                if row.drafted:
                    self._planner.drafts.learn(task, row.drafted, len(ids) - 1)
                    self._counters.accepted += len(drawn.ids) - 1
        # The last token that was drawn has no KV, and what a wrong draft left is of no use.
        request.computed = request.length - 1 if row.drafted else row.stop
        self._cache.commit(request.hold, request.tokens, request.computed)
        if row.drafted:
            self._cache.shrink(request.hold, request.computed)
        if row.start < request.prompt_len:
            self._counters.computed_prompt += min(row.stop, request.prompt_len) - row.start
        if row.score_from < row.score_to:
            assert task.scored is not None
            task.scored += sampled.prompt_logprobs[index] or []
            task.score_next = row.score_to
        if finish is not None:
            self._retire(task, finish, drawn)
        elif drawn is not None:
            self._report(task, drawn, None)

    def _take_tokens(
        self, task: Task, ids: list[int], logprobs: list[TokenLogprobs] | None
    ) -> tuple[Drawn, Finish | None]:
        """Appends the tokens that a row has drawn, up to the one with which it ends."""
        index, finish, taken = task.request.output_len, None, 0
        while finish is None and taken < len(ids):
            finish = self._append(task, ids[taken])
            taken += 1
        if finish is None and task.request.complete:
            finish = Finish("stop")
        self._counters.outputs += taken
        if taken < len(ids):
            ids = ids[:taken]
            logprobs = None if logprobs is None else logprobs[:taken]
        return Drawn(index, ids, logprobs), finish

    def _append(self, task: Task, token: int) -> Finish | None:
        task.request.append(token)
        return self._rules.after(task, token)

    def _retire(self, task: Task, finish: Finish, drawn: Drawn | None = None) -> None:
        """Ends a running task."""
        self._running.leave(task)
        self._running.vacate(task)
        self._end(task, finish, drawn)

    def _end(self, task: Task, finish: Finish, drawn: Drawn | None = None) -> None:
        """The last that is heard of a task."""
        request = task.request
        choices = self._alive[request.rid]
        del choices[request.choice]
        if not choices:
            del self._alive[request.rid]
        self._report(task, drawn, finish)

    def _report(self, task: Task, drawn: Drawn | None, finish: Finish | None) -> None:
        if task.pending:
            start, ids, logprobs = drawn or Drawn(task.request.output_len, [], None)
            drawn = Drawn(start - len(task.pending), task.pending + ids, logprobs)
            task.pending = []
        if not task.reported:  # from now on, what it found in the cache is final
            self._counters.cached_prompt += task.request.cached or 0
        self._outbox.report(task, drawn, finish)

    def _abort_task(self, task: Task) -> None:
        if task not in self._running:
            self._waiting.remove(task)
        else:
            self._running.leave(task)
            if task.in_flight:
                task.leaving = True
            else:
                self._running.vacate(task)
            self._waiting.unpark(self._running)
        self._end(task, Finish("abort"))
