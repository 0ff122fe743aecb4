"""What a worker process and an ``Engine`` both drive: scheduler, runner, and the only clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sapwood.constrain.matcher import MaskRow
from sapwood.radix import RadixTree

from .batch import Batch, Sampled
from .config import SchedulerConfig
from .constraints import Constraints
from .errors import RequestError
from .held_submits import HeldSubmits
from .memory import PageAllocator, PrefixCache
from .messages import (
    Abort,
    Control,
    ControlReply,
    Opened,
    Refused,
    StepStats,
    Submit,
    ToDetokenizer,
    TokenItem,
    TokenLogprobs,
    Tokens,
    ToWorker,
)
from .scheduler import Events, Scheduler
from .stops import TokenText

if TYPE_CHECKING:
    from .checkpoint import Checkpoint


COMPILING_POLL = 0.001
"""Seconds between two looks whether a constraint has been compiled, where nothing else is done."""


class Runner(Protocol):
    """Computes steps: a model on a device, or a script in tests.

    What it also does for rows that a constraint holds is in ``guidance.Redraws``.
    """

    def forward(self, batch: Batch) -> Any:
        """One forward pass over all rows; what it returns is ``sample``'s to read."""
        ...

    def sample(
        self, batch: Batch, logits: Any, masks: list[MaskRow | None] | None = None
    ) -> Sampled:
        """Draws the tokens of the rows that have caught up."""
        ...

    def redraw(
        self, batch: Batch, logits: Any, index: int, mask: MaskRow, attempt: int
    ) -> int | None:
        """See ``guidance.Redraws``."""
        ...

    def report(self, batch: Batch, logits: Any, index: int, token: int) -> list[TokenLogprobs]:
        """See ``guidance.Redraws``."""
        ...


class Core:
    """Takes messages, runs steps, and gives back messages. For one thread.

    An exception of the runner passes through ``step``: what it was computing is lost with the
    process, and whoever started that has the requests. A row's own fault ends that row alone.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        clock: Callable[[], float] = time.monotonic,
        constraints: Constraints | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._held = None if constraints is None else HeldSubmits(constraints)
        self._clock = clock
        self._replies: list[ToDetokenizer] = []
        self._arrived: dict[tuple[str, int, int], float] = {}

    @classmethod
    def of(
        cls,
        runner: Any,
        checkpoint: Checkpoint,
        config: SchedulerConfig,
        context_length: int,
    ) -> Core:
        """A core over a loaded model: an empty tree over the pages of ``runner.pool``."""
        pool = runner.pool
        cache = PrefixCache(RadixTree(pool.page_size), PageAllocator(pool.n_pages))
        tokenizer = checkpoint.tokenizer
        scheduler = Scheduler(
            config,
            cache,
            context_length=context_length,
            eos_ids=checkpoint.eos_ids,
            text=TokenText(tokenizer.token_bytes, tokenizer.special_ids),
        )
        vocabulary = checkpoint.vocabulary
        constraints = None
        if vocabulary.eos_ids:
            constraints = Constraints(vocabulary, tokenizer.encode_written)
        return cls(scheduler, runner, constraints=constraints)

    def prepare(self) -> None:
        """Makes ready for constraints, beside the first requests."""
        if self._held is not None:
            self._held.prepare()

    @property
    def busy(self) -> bool:
        """Whether ``step`` has anything to do or to tell."""
        return bool(self._replies) or not self._scheduler.idle or self._compiled

    @property
    def patience(self) -> float | None:
        """Seconds that a caller may wait for messages before the next ``step``; ``None`` is any
        number."""
        if self.busy:
            return 0.0
        waits = self._held is not None and self._held.waiting
        return COMPILING_POLL if waits else None

    @property
    def _compiled(self) -> bool:
        """Whether a constraint that a sample waits for is there, or will not be."""
        return self._held is not None and self._held.ready

    def handle(self, message: ToWorker) -> None:
        """Takes one message; whatever is to be answered at once comes with the next ``step``."""
        if isinstance(message, Submit):
            self._arrived[message.rid, message.choice, message.epoch] = self._clock()
            self._submit(message)
        elif isinstance(message, Abort):
            self._abort(message.rid)
        else:
            self._replies.append(self._control(message))
        self._tell(self._scheduler.take_events(), 0.0)

    def step(self) -> list[ToDetokenizer]:
        """Runs one step if there is work, and returns all that is to be told, in order."""
        began = self._clock()
        self._admit_compiled()
        batch = self._scheduler.next_batch()
        if batch is not None:
            logits = self._runner.forward(batch)
            sampled = self._sampled(batch, logits)
            events = self._scheduler.commit(batch, sampled)
            seconds = self._clock() - began
            self._scheduler.took(batch, seconds)
            self._tell(events, began, seconds)
        replies, self._replies = self._replies, []
        return replies

    def _sampled(self, batch: Batch, logits: Any) -> Sampled:
        guidance = None if self._held is None else self._held.guidance
        masks = None if guidance is None else guidance.masks(batch)
        sampled = self._runner.sample(batch, logits, masks)
        if guidance is None or masks is None:
            return sampled
        return guidance.settle(batch, logits, sampled, masks, self._runner)

    def _submit(self, submit: Submit) -> None:
        """Gives a sample to the scheduler, once what it is held to has been compiled."""
        if submit.constraint is None:
            self._scheduler.submit(submit)
            return
        try:
            if self._held is None:
                raise RequestError("this model has no end token: its output cannot be constrained")
            self._held.add(submit)
        except RequestError as error:
            self._refuse(submit, error)
        self._admit_compiled()

    def _admit_compiled(self) -> None:
        if self._held is None or not self._held.ready:
            return
        for submit, held in self._held.take():
            if isinstance(held, RequestError):
                self._refuse(submit, held)
            else:
                self._scheduler.submit(submit, held)
        self._tell(self._scheduler.take_events(), 0.0)

    def _abort(self, rid: str) -> None:
        for submit in () if self._held is None else self._held.drop(rid):
            self._scheduler.submit(submit)  # as one that is free, and at once ended
        self._scheduler.abort(rid)

    def _refuse(self, submit: Submit, error: RequestError) -> None:
        refused = Refused(
            rid=submit.rid,
            choice=submit.choice,
            epoch=submit.epoch,
            message=error.message,
            status=error.status,
            param=error.param,
            code=error.code,
        )
        self._tell(Events([], [refused], []), 0.0)

    def audit(self) -> str | None:
        """What is wrong with who owns which page, if anything is; costs milliseconds."""
        try:
            self._scheduler.audit()
        except AssertionError as error:
            return str(error) or "an audit of the pages failed"
        return None

    def stats(self) -> StepStats:
        """The state now."""
        stats = self._scheduler.stats()
        guidance = None if self._held is None else self._held.guidance
        if guidance is None:
            return stats
        return msgspec.structs.replace(
            stats,
            constrained_draws=guidance.rows,
            forced_tokens=guidance.forced,
            vetoed_tokens=guidance.vetoed,
            closed_tokens=guidance.closed,
        )

    def _tell(self, events: Events, began: float, seconds: float | None = None) -> None:
        """Turns events into messages: samples open before their tokens come. ``seconds`` is what a
        step took, if they are of one."""
        if not events and seconds is None:
            return
        queued = [began - self._arrived.pop(_key(each), began) for each in events.opened]
        self._replies += events.opened
        self._replies += events.refused
        for refused in events.refused:
            self._arrived.pop(_key(refused), None)
        for item in events.items:
            if item.finish is not None:  # it may have been aborted before it started
                self._arrived.pop(_key(item), None)
        if events.items or seconds is not None:
            stats = msgspec.structs.replace(
                self.stats(),
                step_seconds=seconds or 0.0,
                queue_seconds=[] if seconds is None else queued,
            )
            self._replies.append(Tokens(events.items, stats))

    def _control(self, message: Control) -> ControlReply:
        if message.op == "flush_cache":
            if self._scheduler.flush():
                return ControlReply(message.id, True, {})
            stats = self.stats()
            reason = f"{stats.running} requests run and {stats.waiting} wait; nothing was changed"
            return ControlReply(message.id, False, {"message": reason})
        detail = msgspec.structs.asdict(self.stats())
        if self._held is not None:
            detail["constraints"] = self._held.info()
        return ControlReply(message.id, True, detail)


def _key(message: Opened | Refused | TokenItem) -> tuple[str, int, int]:
    return (message.rid, message.choice, message.epoch)
