"""What a sample's output is held to, on its way into the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sapwood.constrain.matcher import Matcher
from sapwood.constrain.spec import Warning

from ..request import Request
from .task import Task


class Held(NamedTuple):
    """``matcher`` is the sample's own, at the start of its output. ``begin`` says with which
    tokens it must go on, and raises ``RequestError`` if it cannot end within its budget."""

    matcher: Matcher
    warnings: Sequence[Warning]
    begin: Callable[[Request], list[int]]

    def enter(self, task: Task) -> list[int]:
        """Gives a new task its matcher; the tokens that must come first."""
        task.request.matcher = self.matcher
        task.warnings = list(self.warnings)
        return self.begin(task.request)
