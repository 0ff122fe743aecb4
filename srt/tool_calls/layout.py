"""How calls are written, down to the blank: one description for the constraint and the reader.

A run of calls is ``prefix``, calls joined by ``separator``, ``suffix``; a call is one of ``heads``,
the function's name, ``middle``, the arguments as JSON, ``tail``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sapwood.constrain.spec import StructuralTag, Tag

from .choice import ToolUse
from .tool import Tool

MAX_CALLS = 32
"""Calls in a row. Small models that are told to call would go on until their budget ends."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A way to write calls. Names and arguments are the only parts that vary.

    A call starts where one of ``triggers`` is written in free text, or all that comes before the
    arguments of a call whose head has no trigger. Of ``heads`` the first is the one used where
    nothing but calls may be written. ``several`` says whether an answer may have more than one
    call.
    """

    heads: tuple[str, ...]
    middle: str
    tail: str
    triggers: tuple[str, ...]
    prefix: str = ""
    separator: str = ""
    suffix: str = ""
    several: bool = True

    def begins(self, names: Sequence[str], *, forced: bool) -> Mapping[str, str]:
        """Every text that a call may begin with, and the function that it calls."""
        heads = self.heads[:1] if forced else self.heads
        return {head + name + self.middle: name for name in names for head in heads}

    def marks(self, names: Sequence[str]) -> tuple[str, ...]:
        """Texts that begin calls, wherever they are written in free text."""
        begins = self.begins(names, forced=False)
        bare = (begin for begin in begins if not (self.prefix + begin).startswith(self.triggers))
        return (*self.triggers, *bare)

    def call(self, name: str, arguments: str) -> str:
        """A call, written."""
        return self.heads[0] + name + self.middle + arguments + self.tail

    def run(self, calls: Sequence[tuple[str, str]]) -> str:
        """Calls (name, arguments), written as one run."""
        written = self.separator.join(self.call(name, arguments) for name, arguments in calls)
        return self.prefix + written + self.suffix

    def beside_json(self) -> Layout:
        """For answers that are one call, or else JSON: calls that no JSON can be taken for."""
        heads = (self.prefix + head for head in self.heads)
        return Layout(
            heads=tuple(head for head in heads if not head.startswith("{")),
            middle=self.middle,
            tail=self.tail + self.suffix,
            triggers=(),
            several=False,
        )

    def constraint(
        self, tools: Sequence[Tool], use: ToolUse, answer: str | None = None
    ) -> StructuralTag:
        """What holds an output to the calls that may be made, and their arguments to the schemas.

        The tools' tags are in their order, as many for each. Where no call may be made, there are
        triggers without tags: they are never written. ``answer`` is the schema of the JSON that may
        be written in the place of calls, and has the last tag; see ``beside_json``.
        """
        marks = self.marks([tool.name for tool in tools])
        if use.mode == "none":
            return StructuralTag(tags=(), triggers=marks)
        tags = tuple(
            Tag(begin=begin, schema=tool.held_to, end=self.tail)
            for tool in tools
            for begin in self.begins([tool.name], forced=use.forced)
        )
        whole = use.forced or answer is not None
        if answer is not None:
            tags = (*tags, Tag(begin="", schema=answer, end=""))
        return StructuralTag(
            tags=tags,
            triggers=() if whole else marks,
            free_text=not whole,
            at_least_one=whole,
            stop_after_first=use.single or not self.several or answer is not None,
            most=MAX_CALLS,
            prefix=self.prefix,
            separator=self.separator,
            suffix=self.suffix,
        )
