"""Who is in the next step: running rows first, then whoever is admitted."""

from __future__ import annotations

from itertools import islice

from ..config import SchedulerConfig
from ..memory.prefix_cache import PrefixCache
from .counters import Counters
from .drafts import Drafts
from .events import Outbox
from .plan import Plan
from .running import RunningRows
from .sharing import find_leader
from .task import Task
from .waiting import WaitingQueue

EXAMINED = 128
"""Waiting tasks that are looked at in a step."""


class Planner:
    """Makes the plan of each step: finds pages for it, admits tasks and pushes others back.

    Tasks are ``waiting`` or ``running``; the scheduler puts them in and takes them out.
    """

    def __init__(self, config: SchedulerConfig, cache: PrefixCache) -> None:
        self._cache = cache
        self._budget = config.max_batched_tokens
        self.waiting = WaitingQueue(self._cached_length, config.ageing_steps)
        rows = min(config.max_running, config.max_batched_tokens)
        self.running = RunningRows(cache, rows, config.reserve_tokens)
        self.drafts = Drafts(config)
        self.outbox = Outbox()
        self.counters = Counters()

    def plan(self) -> Plan:
        """The next step; not empty if anything runs or waits.

        Decoding rows come first, then rows that fill in what they came with, then what is admitted,
        as far as the tokens of a step go. What is left then goes to the rows that fill in, in the
        order of their admission, and last to drafts.
        """
        plan = Plan(self._budget)
        calm = self._plan_running(plan)
        if calm and plan.left and self.running.n_slots and self.waiting:
            self._admit(plan)
        self._top_up(plan)
        if self.drafts.on:
            self._draft(plan)
        return plan

    def _plan_running(self, plan: Plan) -> bool:
        """Plans the rows that run; ``False`` where one had to be pushed back."""
        before = self.counters.pushed_back
        rows = sorted(self.running, key=lambda task: task.filling)
        for task in rows:
            if task in self.running and plan.left:
                self._plan_row(task, plan)
        return self.counters.pushed_back == before

    def _plan_row(self, task: Task, plan: Plan) -> None:
        """Finds pages for a row's next tokens, at the cost of other rows where it must be."""
        hold = task.request.hold
        assert hold is not None
        stop = plan.wants(task)
        while not self._cache.grow(hold, stop):
            victim = self.running.victim()
            assert len(self.running) > 1, "a row alone must fit"
            plan.drop(victim)
            self._push_back(victim)
            if victim is task:
                return
        plan.add(task, stop)

    def _push_back(self, task: Task) -> None:
        """Puts a row back into the queue. Its tokens stay, and its KV as long as nobody needs the
        pages: it goes on exactly where it was. Who waits for it is freed with the next commit."""
        task.pushed_back += 1
        self.counters.pushed_back += 1
        self.running.leave(task)
        self.running.vacate(task)
        self.waiting.push(task)

    def _admit(self, plan: Plan) -> None:
        """Starts waiting tasks while there are tokens, slots and pages."""
        running, page_size = self.running, self._cache.page_size
        promised = running.promised()
        filling = [task for task in running if task.filling]
        for task in islice(self.waiting.candidates(self.counters.steps), EXAMINED):
            if not (plan.left and running.n_slots):
                return
            cached = self._cached_length(task)
            leader = find_leader(task, cached, filling, page_size)
            if leader is not None:
                self.waiting.park(task, leader.task, leader.share)
                continue
            hold = running.fitting(task, cached, promised)
            if hold is None:  # those behind it wait too, or it might wait for ever
                return
            self.waiting.admit(task)
            running.enter(task, hold)
            self._started(task)
            stop = plan.wants(task)
            fits = self._cache.grow(hold, stop)
            assert fits, "what was promised is there"
            plan.add(task, stop)
            filling.append(task)
            promised += running.promised_to(task)

    def _top_up(self, plan: Plan) -> None:
        """Gives tokens that nobody else could use to rows that fill in; for these no other row is
        pushed back."""
        for task, stop in plan.top_ups():
            hold = task.request.hold
            assert hold is not None
            if self._cache.grow(hold, stop):
                plan.extend(task, stop)

    def _draft(self, plan: Plan) -> None:
        """Lets rows that generate guess further tokens, where there are pages for them."""
        for task, ids in self.drafts.choose(plan.stops, plan.left):
            request = task.request
            assert request.hold is not None
            stop = request.length + len(ids)
            if self._cache.grow(request.hold, stop):
                request.draft(ids)
                plan.extend(task, stop)
                self.counters.drafted += len(ids)

    def _started(self, task: Task) -> None:
        request = task.request
        if not task.opened:
            self.outbox.open(task)
            request.cached = min(request.computed, request.prompt_len)
        elif not task.reported:
            # What it found the first time and has lost since, it computes itself after all.
            request.cached = min(request.cached or 0, request.computed)

    def _cached_length(self, task: Task) -> int:
        request = task.request
        return self._cache.cached_length(request.namespace, request.tokens, task.match_limit)
