"""llama.cpp's grammars (GBNF): read, checked, and written in llguidance's language.

Every character is a lexeme of its own there: longer ones would be taken greedily, and lose texts
such as ``abc`` of ``"a" "bc" | "ab" "d"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .characters import ALL, Ranges, complement, normalised
from .refusal import Refusal

MAX_LENGTH = 1_000_000
MAX_DEPTH = 100
MAX_COUNT = 10_000
MAX_SIZE = 100_000
"""Characters and rules' names of all rules, counted repetitions written out."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of some ranges of code points, which are sorted and apart."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Ref:
    """What another rule matches. ``at`` is where in the grammar it is named."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; none is the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of some."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """``low`` to ``high`` times, or any number from ``low`` on."""

    part: Node
    low: int
    high: int | None


Node = Chars | Ref | Sequence | Either | Repeated
Rules = Mapping[str, Node]

ROOT = "root"


def read_grammar(text: str) -> Rules:
    """Reads a grammar. ``Refusal`` says what is wrong, and at which line and column."""
    if len(text) > MAX_LENGTH:
        raise Refusal("", "", f"the grammar has more than {MAX_LENGTH} characters")
    rules, places = _Reader(text).rules()
    if ROOT not in rules:
        raise Refusal("", "", f"the grammar has no rule named {ROOT!r}")
    for node in rules.values():
        for ref in refs(node):
            if ref.name not in rules:
                raise _refusal(text, ref.at, f"there is no rule named {ref.name!r}")
    if sum(map(_size, rules.values())) > MAX_SIZE:
        raise Refusal("", "", f"the grammar has more than {MAX_SIZE} parts, written out")
    reached = _reached(rules)
    ending = _ending(rules)
    for name in rules:
        if name in reached and name not in ending:
            raise _refusal(text, places[name], f"the rule {name!r} matches no text that ends")
    return {name: node for name, node in rules.items() if name in reached}


def lark(rules: Rules) -> str:
    """The grammar in llguidance's dialect of Lark."""
    names = {name: f"r{i}" for i, name in enumerate(rules)}
    lines = [f"start: {names[ROOT]}"]
    lines += [f"{names[name]}: {_lark(node, names)}" for name, node in rules.items()]
    return "\n".join(lines)


def refs(node: Node) -> Iterator[Ref]:
    """The rules that a node names, in order."""
    if isinstance(node, Ref):
        yield node
    for part in _parts(node):
        yield from refs(part)


def _parts(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Sequence):
        return node.parts
    if isinstance(node, Either):
        return node.options
    return (node.part,) if isinstance(node, Repeated) else ()


def _size(node: Node) -> int:
    size = sum(map(_size, _parts(node))) or 1
    if isinstance(node, Repeated):
        return size * max(node.low + 1 if node.high is None else node.high, 1)
    return size


def _reached(rules: Rules) -> set[str]:
    reached, todo = {ROOT}, [ROOT]
    while todo:
        for ref in refs(rules[todo.pop()]):
            if ref.name not in reached:
                reached.add(ref.name)
                todo.append(ref.name)
    return reached


def _ending(rules: Rules) -> set[str]:
    """The rules that match any text at all."""
    ending: set[str] = set()
    while True:
        more = {name for name, node in rules.items() if name not in ending and _ends(node, ending)}
        if not more:
            return ending
        ending |= more


def _ends(node: Node, ending: set[str]) -> bool:
    if isinstance(node, Ref):
        return node.name in ending
    if isinstance(node, Either):
        return any(_ends(option, ending) for option in node.options)
    if isinstance(node, Repeated) and node.low == 0:
        return True
    return all(_ends(part, ending) for part in _parts(node))


def _lark(node: Node, names: Mapping[str, str]) -> str:
    if isinstance(node, Ref):
        return names[node.name]
    if isinstance(node, Chars):
        inner = "".join(f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in node.ranges)
        return f"/[{inner}]/"
    if isinstance(node, Sequence):
        return " ".join(_lark(part, names) for part in node.parts) or '""'
    if isinstance(node, Either):
        return f"({' | '.join(_lark(option, names) for option in node.options)})"
    inner = f"({_lark(node.part, names)})"
    if node.high is None:
        return inner + {0: "*", 1: "+"}.get(node.low, f"{{{node.low},}}")
    return f"{inner}{{{node.low},{node.high}}}" if node.high else '""'


def _refusal(text: str, at: int, reason: str) -> Refusal:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return Refusal("", "", f"line {line}, column {column}: {reason}")


# -- reading ---------------------------------------------------------------------------------------

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_COUNTS = re.compile(r"\{\s*(\d+)\s*(,?)\s*(\d*)\s*\}")
_CODE = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}")
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_SIMPLE |= {"^": "^", "-": "-", "'": "'", "/": "/"}


class _Read(NamedTuple):
    rules: dict[str, Node]
    places: dict[str, int]


class _Reader:
    """One reading, from left to right."""

    __slots__ = ("_at", "_depth", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def rules(self) -> _Read:
        found = _Read({}, {})
        self._skip()
        while self._at < len(self._text):
            start = self._at
            name = _NAME.match(self._text, start)
            if not name:
                raise self._refused("the name of a rule is missing", start)
            self._at = name.end()
            self._skip()
            if not self._take("::="):
                raise self._refused("'::=' is missing")
            if name[0] in found.rules:
                raise self._refused(f"the rule {name[0]!r} is there already", start)
            found.places[name[0]] = start
            self._skip()
            found.rules[name[0]] = self._either()
        return found

    def _refused(self, reason: str, at: int | None = None) -> Refusal:
        return _refusal(self._text, self._at if at is None else at, reason)

    def _skip(self) -> None:
        blank = _BLANK.match(self._text, self._at)
        assert blank is not None
        self._at = blank.end()

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _either(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            self._skip()
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Either(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._begins_rule():
                break
            part = self._part()
            self._skip()
            parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _begins_rule(self) -> bool:
        name = _NAME.match(self._text, self._at)
        if not name or self._depth:
            return False
        blank = _BLANK.match(self._text, name.end())
        assert blank is not None
        return self._text.startswith("::=", blank.end())

    def _part(self) -> Node:
        start, char = self._at, self._text[self._at]
        name = _NAME.match(self._text, start)
        if name:
            self._at = name.end()
            return Ref(name[0], start)
        self._at += 1
        if char == '"':
            return self._literal(start)
        if char == "[":
            return self._class(start)
        if char == "(":
            return self._group(start)
        if char == ".":
            return Chars(ALL)
        if char == "<":
            raise self._refused("tokens are not named in grammars", start)
        raise self._refused(f"{char!r} is not expected", start)

    def _group(self, start: int) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._refused(f"groups nested deeper than {MAX_DEPTH}", start)
        self._skip()
        node = self._either()
        self._depth -= 1
        if not self._take(")"):
            raise self._refused("'(' is not closed", start)
        return node

    def _literal(self, start: int) -> Node:
        chars: list[Node] = []
        while not self._take('"'):
            code = self._char(start, "'\"' is not closed")
            chars.append(Chars(((code, code),)))
        return chars[0] if len(chars) == 1 else Sequence(tuple(chars))

    def _class(self, start: int) -> Node:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            low = high = self._char(start, "'[' is not closed")
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                high = self._char(start, "'[' is not closed")
            if high < low:
                raise self._refused("a range from a later character to an earlier one", start)
            ranges.append((low, high))
        normal = normalised(ranges)
        normal = complement(normal) if negated else normal
        if not normal:
            raise self._refused("a class without characters", start)
        return Chars(normal)

    def _char(self, start: int, unclosed: str) -> int:
        """A character, or an escape; its code point."""
        if self._at >= len(self._text) or self._text[self._at] == "\n":
            raise self._refused(unclosed, start)
        char = self._text[self._at]
        self._at += 1
        code = ord(char)
        if char == "\\":
            at = self._at
            number = _CODE.match(self._text, at)
            simple = _SIMPLE.get(self._text[at : at + 1])
            if number:
                self._at, code = number.end(), int(number[0][1:], 16)
            elif simple:
                self._at, code = at + 1, ord(simple)
            else:
                raise self._refused("an unknown escape", at - 1)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise self._refused(f"{code:x} is no character", self._at - 1)
        return code

    def _repeated(self, part: Node) -> Node:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in "*+?{":
            char = self._text[self._at]
            if char == "{":
                low, high = self._counts()
            else:
                self._at += 1
                low, high = (1 if char == "+" else 0), (1 if char == "?" else None)
            part = Repeated(part, low, high)
            self._skip()
            if self._at - start > MAX_DEPTH:
                raise self._refused("too many repetitions of repetitions", start)
        return part

    def _counts(self) -> tuple[int, int | None]:
        counts = _COUNTS.match(self._text, self._at)
        if not counts:
            raise self._refused("not a repetition: {m}, {m,} or {m,n}")
        low = int(counts[1])
        high = int(counts[3]) if counts[3] else None if counts[2] else low
        if max(low, high or 0) > MAX_COUNT or (high is not None and high < low):
            raise self._refused(f"the repetition {counts[0]} is not possible")
        self._at = counts.end()
        return low, high
