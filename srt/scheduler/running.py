"""The rows that run: their slots and pages, and who must go where pages run out."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from ..memory.prefix_cache import Hold, PrefixCache
from .task import Task


class RunningRows:
    """Running tasks in the order of their admission.

    ``reserve_tokens`` is the growth that each row must find room for when another is admitted, so
    that a row does not come in only to push another out, or be pushed out, at once.
    """

    def __init__(self, cache: PrefixCache, max_running: int, reserve_tokens: int) -> None:
        self._cache = cache
        self._reserve_tokens = reserve_tokens
        self._slots = list(range(max_running))
        self._tasks: dict[Task, None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    @property
    def n_slots(self) -> int:
        """Rows that may run beside those that do."""
        return len(self._slots)

    def promised(self) -> int:
        """Pages that all rows were promised and do not have yet."""
        return sum(map(self.promised_to, self._tasks))

    def promised_to(self, task: Task) -> int:
        """Pages that a row needs for all that it knows and its reserve, beyond those it has."""
        return max(self._needs(task) - _hold(task).n_pages, 0)

    def fitting(self, task: Task, cached: int, promised: int) -> Hold | None:
        """Opens a hold for a waiting task, if its pages can be promised beside ``promised`` ones.

        ``cached`` is the length of its cached prefix. With nothing else running it always fits.
        """
        cache, request = self._cache, task.request
        missing = self._needs(task) - cached // cache.page_size
        if self._tasks and missing + promised > cache.n_free + cache.n_evictable:
            return None
        hold = cache.open(request.namespace, request.tokens, task.match_limit)
        # What it holds now can no longer be evicted, so that is to be looked at again.
        missing = self._needs(task) - hold.n_pages
        if self._tasks and missing + promised > cache.n_free + cache.n_evictable:
            cache.close(hold)
            return None
        return hold

    def enter(self, task: Task, hold: Hold) -> None:
        """Starts a task with what its hold has of it."""
        request = task.request
        request.hold = hold
        request.computed = task.found = hold.length
        request.slot = heapq.heappop(self._slots)
        task.known = request.length
        self._tasks[task] = None

    def leave(self, task: Task) -> None:
        """Takes a task out of the rows. Its pages and slot stay its own until ``vacate``."""
        self._tasks.pop(task, None)

    def vacate(self, task: Task) -> None:
        """Gives back pages and slot. What was committed stays in the tree until evicted."""
        request = task.request
        self._cache.close(_hold(task))
        assert request.slot is not None
        heapq.heappush(self._slots, request.slot)
        request.hold, request.slot = None, None
        request.computed = 0

    def victim(self) -> Task:
        """The row that has the least to lose.

        That is one of the lowest priority, pushed back least often so far, with the fewest tokens
        computed. The row at the other end of this order is never pushed back while others run, and
        each push-back moves a row towards that end: so each row reaches its end at last.
        """
        return min(
            self._tasks,
            key=lambda task: (
                task.request.priority,
                task.pushed_back,
                task.request.computed,
                -task.number,
            ),
        )

    def _needs(self, task: Task) -> int:
        """Pages for all that a task knows and its reserve."""
        tokens = min(task.request.length + self._reserve_tokens, task.kv_end)
        return -(-tokens // self._cache.page_size)


def _hold(task: Task) -> Hold:
    hold = task.request.hold
    assert hold is not None, "a running row holds pages"
    return hold
