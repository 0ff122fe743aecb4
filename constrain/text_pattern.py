"""Regular expressions read as automata over characters, to find the shortest way to a match.

Used where a string that has been begun is to be brought to its end. What this cannot read gives no
way; whatever it gives is checked by the grammar's own engine.
"""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, TypeVar

T = TypeVar("T")

MAX_STATES = 3000
MAX_UNROLLED = 256
MAX_VISITED = 1500
MAX_REMEMBERED = 4096
_CACHED = 128

_DIGIT = ((48, 57),)
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE = ((9, 13), (32, 32), (160, 160), (0x2028, 0x2029))
_ANY = ((0, 0x10FFFF),)
_ASCII = (1 << 128) - 1
_CONTROLS = (1 << 32) - 1 | 1 << 127
_LIKED = "a0A -1_./:@bzZ9#,x+=\"'\\"


class CharSet:
    """Characters in any of some ranges of code points, or in none of them.

    ``ascii`` has bit ``c`` set for each character ``c`` below 128 that is among them.
    """

    __slots__ = ("_negated", "_ranges", "ascii")

    def __init__(self, ranges: tuple[tuple[int, int], ...], negated: bool = False) -> None:
        self._ranges = ranges
        self._negated = negated
        bits = 0
        for low, high in ranges:
            if low < 128:
                bits |= (1 << (min(high, 127) + 1)) - (1 << low)
        self.ascii = _ASCII & ~bits if negated else bits

    def has(self, char: str) -> bool:
        """Whether a character is among them."""
        code = ord(char)
        if code < 128:
            return bool(self.ascii >> code & 1)
        return any(low <= code <= high for low, high in self._ranges) is not self._negated

    def beyond_ascii(self) -> Iterable[str]:
        """Some of them that are not ASCII."""
        if self._negated:
            ends = (chr(high + 1) for _, high in self._ranges if high >= 127)
            yield from (char for char in ("\x80", *ends) if self.has(char))
            return
        for low, high in self._ranges:
            if high >= 128:
                yield chr(max(low, 128))
                yield chr(high)


@lru_cache(4096)
def charset(ranges: tuple[tuple[int, int], ...], negated: bool = False) -> CharSet:
    """The set of some ranges: equal ones are one object."""
    return CharSet(ranges, negated)


States = frozenset[int]
"""States in which an automaton may be at the same time."""


class UnreadableError(Exception):
    """An expression that these automata do not cover."""


class Pattern:
    """An expression that a text must contain a match of, as a non-deterministic automaton.

    States are numbers, 0 is where all begins. After a match the automaton stays accepting, unless
    the expression says that the text ends there.
    """

    __slots__ = (
        "_begin",
        "_cache",
        "_edges",
        "_empty",
        "_end",
        "_ends",
        "_moves",
        "accept",
        "ways",
    )

    def __init__(self, expression: str) -> None:
        self._edges: list[list[tuple[CharSet, int]]] = []
        self._empty: list[list[int]] = []
        self._begin: list[list[int]] = []
        self._end: list[list[int]] = []
        self._cache: OrderedDict[str, States] = OrderedDict()
        self._moves: dict[States, list[tuple[str, States]]] = {}
        self._ends: dict[States, bool] = {}
        self.ways: dict[States, str | None] = {}
        start = self._state()
        self.accept = self._build(_parsed(expression), start)
        self._edges[start].append((charset(_ANY), start))
        self._edges[self.accept].append((charset(_ANY), self.accept))

    def after(self, text: str) -> States:
        """The states in which one may be after a text."""
        cache = self._cache
        found = cache.get(text)
        if found is not None:
            return found
        at = next(
            (n for n in range(len(text) - 1, max(len(text) - 24, -1), -1) if text[:n] in cache), 0
        )
        states = cache[text[:at]] if text[:at] in cache else self._closed({0}, first=True)
        for char in text[at:]:
            states = self.step(states, char)
        cache[text] = states
        if len(cache) > _CACHED:
            cache.popitem(last=False)
        return states

    def step(self, states: Iterable[int], char: str) -> States:
        """The states after one more character."""
        return self._closed(
            {target for state in states for chars, target in self._edges[state] if chars.has(char)}
        )

    def accepts(self, states: States) -> bool:
        """Whether the text may end in these states."""
        known = self._ends.get(states)
        if known is None:
            known = self.accept in states or self.accept in self._closed(set(states), last=True)
            self._remember(self._ends, states, known)
        return known

    def moves(self, states: States) -> list[tuple[str, States]]:
        """Characters that lead on, one of each kind, and the states after them."""
        known = self._moves.get(states)
        if known is None:
            known = [
                (char, self.step(states, char)) for char in _characters([self.charsets(states)])
            ]
            self._remember(self._moves, states, known)
        return known

    def _remember(self, table: dict[States, T], states: States, value: T) -> None:
        if len(table) >= MAX_REMEMBERED:
            table.clear()
        table[states] = value

    def charsets(self, states: Iterable[int]) -> set[CharSet]:
        """What may come next."""
        return {chars for state in states for chars, _ in self._edges[state]}

    def _closed(self, states: set[int], first: bool = False, last: bool = False) -> States:
        todo = list(states)
        while todo:
            state = todo.pop()
            reached = list(self._empty[state])
            if first:
                reached += self._begin[state]
            if last:
                reached += self._end[state]
            for each in reached:
                if each not in states:
                    states.add(each)
                    todo.append(each)
        return frozenset(states)

    # -- building --------------------------------------------------------------------------------

    def _state(self) -> int:
        if len(self._edges) >= MAX_STATES:
            raise UnreadableError("too many states")
        for table in (self._edges, self._empty, self._begin, self._end):
            table.append([])
        return len(self._edges) - 1

    def _build(self, items: Iterable[tuple[Any, Any]], start: int) -> int:
        """Adds a sequence from ``start`` on; returns the state after it."""
        for op, argument in items:
            start = self._item(op, argument, start)
        return start

    def _item(self, op: Any, argument: Any, start: int) -> int:
        if op in (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN):
            target = self._state()
            self._edges[start].append((_charset(op, argument), target))
            return target
        if op is ops.BRANCH:
            target = self._state()
            for branch in argument[1]:
                self._empty[self._build(branch, start)].append(target)
            return target
        if op is ops.SUBPATTERN:
            if argument[1] or argument[2]:
                raise UnreadableError("flags")
            return self._build(argument[3], start)
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            low, high, repeated = argument
            return self._repeat(low, high, repeated, start)
        if op is ops.AT:
            return self._anchor(argument, start)
        raise UnreadableError(str(op))

    def _repeat(self, low: int, high: Any, items: Any, start: int) -> int:
        if low > MAX_UNROLLED:
            raise UnreadableError("a repetition of too many")
        for _ in range(low):
            start = self._build(items, self._after_empty(start))
        if high is ops.MAXREPEAT or high - low > MAX_UNROLLED:
            loop = self._after_empty(start)
            self._empty[self._build(items, loop)].append(loop)
            return self._after_empty(loop)
        target = self._state()
        self._empty[start].append(target)
        for _ in range(high - low):
            start = self._build(items, self._after_empty(start))
            self._empty[start].append(target)
        return target

    def _after_empty(self, start: int) -> int:
        state = self._state()
        self._empty[start].append(state)
        return state

    def _anchor(self, where: Any, start: int) -> int:
        target = self._state()
        if where in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
            self._begin[start].append(target)
        elif where in (ops.AT_END, ops.AT_END_STRING):
            self._end[start].append(target)
        else:
            raise UnreadableError("a word boundary")
        return target


@lru_cache(1024)
def pattern(expression: str) -> Pattern | None:
    """The automaton of an expression, ``None`` where it cannot be had."""
    try:
        return Pattern(expression)
    except (UnreadableError, re.error, RecursionError, OverflowError, ValueError):
        return None


def shortest(
    patterns: Sequence[Pattern], begun: str, low: int = 0, high: int | None = None
) -> str | None:
    """The shortest text that brings ``begun`` to a match of all patterns; ``None`` if none is
    found. ``low`` and ``high`` bound the length of the whole in characters."""
    first = tuple(each.after(begun) for each in patterns)
    if len(patterns) > 1 or high is not None or low > len(begun):
        return _searched(patterns, first, len(begun), low, high)
    ways = patterns[0].ways
    if first[0] not in ways:
        if len(ways) >= MAX_REMEMBERED:
            ways.clear()
        ways[first[0]] = _searched(patterns, first, 0, 0, None)
    return ways[first[0]]


def _searched(
    patterns: Sequence[Pattern], first: tuple[States, ...], begun: int, low: int, high: int | None
) -> str | None:
    """A breadth-first search over states of all patterns and, up to ``low``, lengths."""
    todo: list[tuple[tuple[States, ...], str]] = [(first, "")]
    seen = {(first, min(begun, low))}
    while todo and len(seen) < MAX_VISITED:
        next_round = []
        for states, text in todo:
            length = begun + len(text)
            fits = length >= low and (high is None or length <= high)
            if fits and all(p.accepts(s) for p, s in zip(patterns, states, strict=True)):
                return text
            if high is not None and length >= high:
                continue
            for char, then in _moves(patterns, states):
                key = (then, min(length + 1, low))
                if key not in seen:
                    seen.add(key)
                    next_round.append((then, text + char))
        todo = next_round
    return None


def _moves(
    patterns: Sequence[Pattern], states: tuple[States, ...]
) -> Iterable[tuple[str, tuple[States, ...]]]:
    if len(patterns) == 1:
        return ((char, (then,)) for char, then in patterns[0].moves(states[0]))
    sets = [p.charsets(s) for p, s in zip(patterns, states, strict=True)]
    return (
        (char, tuple(p.step(s, char) for p, s in zip(patterns, states, strict=True)))
        for char in _characters(sets)
    )


def _characters(sets: Sequence[set[CharSet]]) -> list[str]:
    """Characters that lead somewhere in all automata, one of each kind: no two of them are in the
    same of the given sets. Those that read well come first."""
    blocks = [_ASCII & ~_CONTROLS, _CONTROLS]
    for chars in set().union(*sets):
        split = []
        for block in blocks:
            inside, outside = block & chars.ascii, block & ~chars.ascii
            split += [part for part in (inside, outside) if part]
        blocks = split
    useful = [_union(each) for each in sets]
    found = sorted(
        (_best(block) for block in blocks if all(block & bits for bits in useful)),
        key=_rank,
    )
    if found:
        return found
    return [
        char
        for chars in set().union(*sets)
        for char in chars.beyond_ascii()
        if all(any(c.has(char) for c in each) for each in sets)
    ]


def _union(sets: Iterable[CharSet]) -> int:
    bits = 0
    for chars in sets:
        bits |= chars.ascii
    return bits


def _best(block: int) -> str:
    """The character of a block that reads best."""
    for char in _LIKED:
        if block >> ord(char) & 1:
            return char
    return chr((block & -block).bit_length() - 1)


def _rank(char: str) -> tuple[int, str]:
    at = _LIKED.find(char)
    return (at if at >= 0 else len(_LIKED), char)


def _parsed(expression: str) -> Any:
    expression = re.sub(r"\(\?<(?![=!])", "(?P<", expression)
    expression = expression.replace(r"\z", r"\Z")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _parser.parse(expression)


def _charset(op: Any, argument: Any) -> CharSet:
    if op is ops.LITERAL:
        return charset(((argument, argument),))
    if op is ops.NOT_LITERAL:
        return charset(((argument, argument),), True)
    if op is ops.ANY:
        return charset(((10, 10), (13, 13), (0x2028, 0x2029)), True)
    ranges: list[tuple[int, int]] = []
    negated = False
    for kind, value in argument:
        if kind is ops.NEGATE:
            negated = True
        elif kind is ops.LITERAL:
            ranges.append((value, value))
        elif kind is ops.RANGE:
            ranges.append(value)
        elif kind is ops.CATEGORY:
            ranges += _category(value)
        else:
            raise UnreadableError(str(kind))
    return charset(tuple(ranges), negated)


def _category(value: Any) -> tuple[tuple[int, int], ...]:
    known = {
        ops.CATEGORY_DIGIT: _DIGIT,
        ops.CATEGORY_WORD: _WORD,
        ops.CATEGORY_SPACE: _SPACE,
        ops.CATEGORY_NOT_DIGIT: _complement(_DIGIT),
        ops.CATEGORY_NOT_WORD: _complement(_WORD),
        ops.CATEGORY_NOT_SPACE: _complement(_SPACE),
    }
    if value not in known:
        raise UnreadableError(str(value))
    return known[value]


def _complement(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    found, at = [], 0
    for low, high in ranges:
        if low > at:
            found.append((at, low - 1))
        at = high + 1
    return (*found, (at, 0x10FFFF))
