"""One step in the making: which tokens of which rows are computed."""

from __future__ import annotations

from collections.abc import Iterator

from ..batch import Row
from .task import Task


class Plan:
    """Chosen tasks, each with the position up to which it is computed, and tokens left to give.

    At first no task gets more than half of the step's tokens, so that a long prompt leaves room
    for others; ``top_ups`` says how what they have left is given to it after all.
    """

    __slots__ = ("_most", "left", "stops")

    def __init__(self, budget: int) -> None:
        self.left = budget
        self._most = -(-budget // 2)
        self.stops: dict[Task, int] = {}

    def wants(self, task: Task) -> int:
        """The position up to which a task can be computed with the tokens that are left."""
        return task.request.computed + min(task.todo, self.left, self._most)

    def add(self, task: Task, stop: int) -> None:
        """Chooses a task."""
        self.stops[task] = stop
        self.left -= stop - task.request.computed

    def top_ups(self) -> Iterator[tuple[Task, int]]:
        """Tasks that could do with more, and up to where; to be given with ``extend``."""
        for task, stop in list(self.stops.items()):
            if not self.left:
                return
            if stop < task.request.length:
                yield task, min(task.request.length, stop + self.left)

    def extend(self, task: Task, stop: int) -> None:
        """Computes a chosen task further."""
        self.left -= stop - self.stops[task]
        self.stops[task] = stop

    def drop(self, task: Task) -> None:
        """Takes a task out, if it was chosen, and its tokens back."""
        stop = self.stops.pop(task, None)
        if stop is not None:
            self.left += stop - task.request.computed


def row_of(task: Task, stop: int, page_size: int) -> Row:
    """A task's part of a step that computes it up to ``stop``."""
    request = task.request
    assert request.hold is not None
    samples = stop >= request.length and request.length < task.end
    score_from = max(request.computed, task.score_next)
    score_to = min(stop, task.score_end)
    return Row(
        request,
        request.computed,
        stop,
        request.length - 1 if samples else stop,
        min(score_from, score_to),
        score_to,
        request.hold.pages[: -(-stop // page_size)],
    )
