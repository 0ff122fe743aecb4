"""Reads regular expressions far enough to know that they stand on their own.

The engines know one dialect (Rust's), and take an expression as part of a longer one. Here it is
read alone: groups that do not close, what is not regular, and anchors. The whole output has to
match, so an anchor at the end that it names says nothing and is taken out; another could never
hold, or only sometimes, and is refused. What a class or an escape means is left to the engines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .refusal import Refusal

MAX_LENGTH = 100_000
MAX_DEPTH = 100
MAX_COUNT = 100_000
_COUNTS = re.compile(r"\{\s*(\d+)\s*(,?)\s*(\d*)\s*\}")
_HEX = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[xuU]\{[0-9A-Fa-f]+\}")
_PROPERTY = re.compile(r"[pP](\{[^{}]*\}|[A-Za-z])")
_NAME = re.compile(r"P?<[A-Za-z_][A-Za-z0-9_.\[\]]*>")
_FLAGS = re.compile(r"([A-Za-z]*)(?:-([A-Za-z]*))?([:)])")


class Expression(NamedTuple):
    """``text`` is the expression without its anchors, closed in itself, and ``part`` what it is
    made of. ``size`` is the number of its characters, repetitions written out. ``has_nul`` says
    that the NUL character is named in it."""

    text: str
    part: Part
    size: int
    has_nul: bool


@dataclass(frozen=True, slots=True)
class Atom:
    """One character: an expression of its own, flags included. ``plain`` means itself."""

    text: str
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where the text begins or ends."""

    at: int
    text: str
    is_start: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One after the other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Branches:
    """One of some."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """``low`` to ``high`` times, or any number from ``low`` on."""

    part: Part
    low: int
    high: int | None


Part = Atom | Anchor | Row | Branches | Loop


def read_expression(text: str) -> Expression:
    """Reads an expression. ``Refusal`` says what cannot be taken, and at which character."""
    if len(text) > MAX_LENGTH:
        raise Refusal("", "", f"the expression has more than {MAX_LENGTH} characters")
    reader = _Reader(text)
    node = reader.whole()
    anchors = list(_resolved(node, True, True))
    kept, at = [], 0
    for anchor in sorted(anchors, key=lambda each: each.at):
        kept += [text[at : anchor.at], "(?:)"]
        at = anchor.at + len(anchor.text)
    return Expression(f"(?:{''.join(kept)}{text[at:]})", node, _size(node), reader.has_nul)


def _refusal(at: int, reason: str) -> Refusal:
    return Refusal("", "", f"at character {at}: {reason}")


class _Reader:
    """One reading, from left to right."""

    __slots__ = ("_at", "_depth", "_flagged", "_text", "has_nul")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flagged = ""
        self.has_nul = "\0" in text

    def whole(self) -> Part:
        node = self._either()
        if self._at < len(self._text):
            raise _refusal(self._at, "')' closes no group")
        return node

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _either(self) -> Part:
        branches = [self._sequence()]
        while self._peek("|"):
            self._at += 1
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Branches(tuple(branches))

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            part = self._part()
            if part is not None:
                parts.append(self._repeated(part))
        return Row(tuple(parts))

    def _part(self) -> Part | None:
        start, char = self._at, self._text[self._at]
        self._at += 1
        if char == "(":
            return self._group(start)
        if char == "[":
            self._class(start, 0)
            return self._atom(start)
        if char == "\\":
            return self._escape(start)
        if char in "^$":
            return Anchor(start, char, char == "^")
        if char in "*+?":
            raise _refusal(start, f"{char!r} repeats nothing")
        if char == "{":
            raise _refusal(start, "'{' repeats nothing (the character is written '\\{')")
        if 0xD800 <= ord(char) < 0xE000:
            raise _refusal(start, "half a character")
        return self._atom(start) if char == "." or "i" in self._flagged else Atom(char, True)

    def _atom(self, start: int) -> Part:
        text = self._text[start : self._at]
        return Atom(f"(?{self._flagged}:{text})" if self._flagged else text)

    # -- groups ----------------------------------------------------------------------------------

    def _group(self, start: int) -> Part | None:
        flagged = self._flagged
        if self._peek("?"):
            self._at += 1
            name = _NAME.match(self._text, self._at)
            if name:
                self._at = name.end()
            elif self._flags(start):
                return None
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _refusal(start, f"groups nested deeper than {MAX_DEPTH}")
        node = self._either()
        self._depth -= 1
        self._flagged = flagged
        if not self._peek(")"):
            raise _refusal(start, "'(' is not closed")
        self._at += 1
        return node

    def _flags(self, start: int) -> bool:
        """Reads what follows ``(?``; whether it is flags alone, without a group."""
        for mark, what in _NOT_REGULAR.items():
            if self._peek(mark):
                raise _refusal(start, f"{what} are not taken: they are not regular")
        flags = _FLAGS.match(self._text, self._at)
        if not flags:
            raise _refusal(start, "an unknown kind of group")
        on, off, end = flags[1], flags[2] or "", flags[3]
        bad = "".join(each for each in on + off if each not in "isuU") or (
            "u" if "u" in off else ""
        )
        if bad:
            raise _refusal(start, f"the flag {bad[0]!r} is not taken (those are: i, s, U)")
        if not on + off and end == ")":
            raise _refusal(start, "flags without a flag")
        self._at = flags.end()
        held = (set(self._flagged) | set(on)) - set(off)
        self._flagged = "".join(sorted(held & {"i", "s"}))
        return end == ")"

    # -- characters ------------------------------------------------------------------------------

    def _escape(self, start: int) -> Part:
        if self._at == len(self._text):
            raise _refusal(start, "a backslash with nothing after it")
        char = self._text[self._at]
        if char in "Az":
            self._at += 1
            return Anchor(start, "\\" + char, char == "A")
        if char == "Z":
            self._at += 1
            return Anchor(start, "\\Z", False)
        if char in "bB<>":
            raise _refusal(start, f"the word boundary '\\{char}' is not taken")
        if char in "123456789kg":
            raise _refusal(start, "back-references are not taken: they are not regular")
        self._character(start)
        return self._atom(start)

    def _character(self, start: int) -> None:
        """Reads an escape after its backslash, in or out of a class."""
        code = _HEX.match(self._text, self._at)
        if code:
            self._at = code.end()
            value = int(code[0][1:].strip("{}"), 16)
            if value > 0x10FFFF or 0xD800 <= value < 0xE000:
                raise _refusal(start, f"{value:x} is no character")
            self.has_nul |= value == 0
            return
        property_ = _PROPERTY.match(self._text, self._at)
        if property_:
            self._at = property_.end()
            return
        char = self._text[self._at]
        self._at += 1
        if char not in "dDsSwWafnrtv" and (not char.isascii() or char.isalnum()):
            raise _refusal(start, f"the escape '\\{char}' is not known")

    def _class(self, start: int, depth: int) -> None:
        """Reads a class after its bracket; classes may stand within classes."""
        if depth > MAX_DEPTH:
            raise _refusal(start, f"classes nested deeper than {MAX_DEPTH}")
        if self._peek("^"):
            self._at += 1
        while self._peek("-"):
            self._at += 1
        if self._peek("]"):
            self._at += 1
        while self._at < len(self._text):
            at, char = self._at, self._text[self._at]
            self._at += 1
            if char == "]":
                return
            if char == "[":
                named = self._text.find(":]", self._at) if self._peek(":") else -1
                if named >= 0:
                    self._at = named + 2
                else:
                    self._class(at, depth + 1)
            elif char == "\\":
                if self._at == len(self._text):
                    break
                self._character(at)
        raise _refusal(start, "'[' is not closed")

    # -- repetitions -----------------------------------------------------------------------------

    def _repeated(self, part: Part) -> Part:
        if self._at == len(self._text) or self._text[self._at] not in "*+?{":
            return part
        part = Loop(part, *self._bounds())
        if self._peek("?"):
            self._at += 1  # which match is preferred says nothing of which texts match
        if self._at < len(self._text) and self._text[self._at] in "*+?{":
            raise _refusal(self._at, "a repetition of a repetition needs a group")
        return part

    def _bounds(self) -> tuple[int, int | None]:
        char = self._text[self._at]
        if char != "{":
            self._at += 1
            return (1 if char == "+" else 0), (1 if char == "?" else None)
        counts = _COUNTS.match(self._text, self._at)
        if not counts:
            raise _refusal(self._at, "no repetition (the character is written '\\{')")
        low = int(counts[1])
        high = int(counts[3]) if counts[3] else None if counts[2] else low
        if max(low, high or 0) > MAX_COUNT or (high is not None and high < low):
            raise _refusal(self._at, f"the repetition {counts[0]} is not possible")
        self._at = counts.end()
        return low, high


_NOT_REGULAR = {
    "=": "look-aheads",
    "!": "look-aheads",
    "<=": "look-behinds",
    "<!": "look-behinds",
    ">": "atomic groups",
    "P=": "back-references",
    "P>": "recursions",
    "R": "recursions",
    "(": "conditions",
}


# -- anchors ---------------------------------------------------------------------------------------


def _resolved(node: Part, first: bool, last: bool) -> Iterator[Anchor]:
    """The anchors of a part; ``Refusal`` for one that may stand elsewhere than at the end that it
    names. ``first`` and ``last``: nothing comes before the part, or after it."""
    if isinstance(node, Anchor):
        if not (first if node.is_start else last):
            end = "beginning" if node.is_start else "end"
            raise _refusal(node.at, f"{node.text!r} is not at the {end} of the expression")
        yield node
    elif isinstance(node, Branches):
        for branch in node.parts:
            yield from _resolved(branch, first, last)
    elif isinstance(node, Loop):
        once = node.high is not None and node.high <= 1
        yield from _resolved(node.part, first and once, last and once)
    elif isinstance(node, Row):
        written = [_writes(part) for part in node.parts]
        for i, part in enumerate(node.parts):
            alone = not any(written[:i]), not any(written[i + 1 :])
            yield from _resolved(part, first and alone[0], last and alone[1])


def _writes(node: Part) -> bool:
    """Whether a part can match any character."""
    if isinstance(node, Row | Branches):
        return any(map(_writes, node.parts))
    if isinstance(node, Loop):
        return node.high != 0 and _writes(node.part)
    return isinstance(node, Atom)


def _size(node: Part) -> int:
    if isinstance(node, Row | Branches):
        return sum(map(_size, node.parts))
    if isinstance(node, Loop):
        return _size(node.part) * (node.low + 1 if node.high is None else node.high)
    return 1 if isinstance(node, Atom) else 0
