"""One step in the making: which tokens of which rows are computed."""

from __future__ import annotations

from ..batch import Row
from .task import Task


class Plan:
    """Chosen tasks, each with the position up to which it is computed, and tokens left to give."""

    __slots__ = ("left", "stops")

    def __init__(self, budget: int) -> None:
        self.left = budget
        self.stops: dict[Task, int] = {}

    def wants(self, task: Task) -> int:
        """The position up to which a task could be computed with the tokens that are left."""
        return task.request.computed + min(task.todo, self.left)

    def add(self, task: Task, stop: int) -> None:
        """Chooses a task."""
        self.stops[task] = stop
        self.left -= stop - task.request.computed

    def drop(self, task: Task) -> None:
        """Takes a task out, if it was chosen, and its tokens back."""
        stop = self.stops.pop(task, None)
        if stop is not None:
            self.left += stop - task.request.computed


def row_of(task: Task, stop: int, page_size: int) -> Row:
    """A task's part of a step that computes it up to ``stop``."""
    request = task.request
    assert request.hold is not None
    samples = stop == request.length < task.end
    score_from = max(request.computed, task.score_next)
    score_to = min(stop, task.score_end)
    return Row(
        request,
        request.computed,
        stop,
        stop - 1 if samples else stop,
        min(score_from, score_to),
        score_to,
        request.hold.pages[: -(-stop // page_size)],
    )
