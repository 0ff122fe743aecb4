"""Which of the tools an answer may, or must, call."""

from __future__ import annotations

from typing import Literal, NamedTuple

ToolChoice = Literal["none", "auto", "required", "named"]


class ToolUse(NamedTuple):
    """What a request says of calls. ``single``: at most one."""

    mode: ToolChoice
    single: bool = False

    @property
    def forced(self) -> bool:
        """Whether an answer is calls and nothing else."""
        return self.mode in ("required", "named")
