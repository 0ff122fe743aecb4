"""Reads texts of a grammar with a set of stacks, to know how each can end.

As in llama.cpp, a place in a text is a set of stacks of what is to come. Each has a least text that
empties it. Rules that begin with themselves are turned into loops; where that is not enough (they
do so by way of others) there is no reader.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakValueDictionary, ref

from .characters import Ranges, has
from .ebnf import ROOT, Chars, Either, Node, Ref, Repeated, Rules, Sequence

MAX_STACKS = 2000
"""Stacks at one place above which the reader gives up: endings are not known any more."""

FAR = 1 << 60
"""The length of a text that there is not."""

_LIKED = "a0A -_.,:\"'1bz"
_TRIES = 4


class Step:
    """What comes next within a rule: a character, a rule, or a choice (``options``).

    After it comes ``then``; ``None`` is the end of the rule. ``least`` is the length in bytes of
    the least text from here to the end of the rule.
    """

    __slots__ = ("best", "called", "least", "options", "ranges", "text", "then")

    def __init__(self, then: Step | None) -> None:
        self.then = then
        self.ranges: Ranges = ()
        self.text = ""
        self.called: Step | None = None
        self.options: list[Step | None] = []
        self.best: Step | None = None
        self.least: int = FAR


class Frame:
    """A stack: what follows when a rule has ended, and below it what follows then."""

    __slots__ = ("__weakref__", "_kid", "_kids", "least", "parent", "then")

    def __init__(self, then: Step | None, parent: Frame | None) -> None:
        self.then = then
        self.parent = parent
        self.least: int = _least(then) + (parent.least if parent else 0)
        # Most stacks have one stack above them, and a dictionary takes longer to make than they.
        self._kid: ref[Frame] | None = None
        self._kids: WeakValueDictionary[int, Frame] | None = None

    def pushed(self, then: Step) -> Frame:
        """The stack with something more on top: the same object each time."""
        kid = None if self._kid is None else self._kid()
        if kid is not None and kid.then is then:
            return kid
        if kid is None:
            others = None if self._kids is None else self._kids.get(id(then))
            if others is not None:
                return others
            made = Frame(then, self)
            self._kid = ref(made)
            return made
        if self._kids is None:
            self._kids = WeakValueDictionary()
        found = self._kids.get(id(then))
        if found is None:
            found = self._kids[id(then)] = Frame(then, self)
        return found


def _least(step: Step | None) -> int:
    return 0 if step is None else step.least


class Place(NamedTuple):
    """A step before which one is, and the stack below."""

    step: Step
    frame: Frame


class EbnfReader:
    """A beginning of a text. See ``ending_matcher.Reader``."""

    __slots__ = ("_ends", "_lost", "_places", "_rules", "_tail", "exacting")

    def __init__(
        self,
        places: dict[tuple[int, int], Place],
        ends: bool,
        tail: bytes = b"",
        lost: bool = False,
    ) -> None:
        self._places = places
        self._ends = ends
        self._tail = tail
        self._lost = lost
        self._rules: Rules | None = None
        self.exacting = False

    @classmethod
    def start(cls, first: Step, rules: Rules) -> EbnfReader:
        """At the beginning of what ``ebnf_reader`` makes of rules."""
        reader = cls(*closed([(first, Frame(None, None))]))
        reader._rules = rules
        return reader

    def __reduce__(self) -> Any:
        """As the rules: steps refer to each other, and are chains as long as a text."""
        assert self._rules is not None, "only a reader at the beginning can be sent"
        return _started, (self._rules,)

    def feed(self, data: bytes) -> EbnfReader:
        """After more text; ``ValueError`` where no text goes on so."""
        if self._lost:
            return self
        data = self._tail + data
        text, tail = _split(data)
        places, ends = self._places, self._ends
        for char in text:
            code = ord(char)
            places, ends = closed(
                (place.step.then, place.frame)
                for place in places.values()
                if has(place.step.ranges, code)
            )
            if not places and not ends:
                raise ValueError(f"no text goes on with {data!r}")
            if len(places) > MAX_STACKS:
                return EbnfReader({}, False, lost=True)
        return EbnfReader(places, ends, tail)

    def endings(self) -> Iterator[bytes]:
        """Least texts that complete this one."""
        if self._lost:
            return
        if self._ends and not self._tail:
            yield b""
        ways = heapq.nsmallest(
            _TRIES, self._places.values(), key=lambda place: place.step.least + place.frame.least
        )
        for place in self._places.values() if self._tail else ways:
            lead = place.step.text.encode()
            if self._tail:
                found = _with_prefix(place.step.ranges, self._tail)
                if found is None:
                    continue
                lead = found[len(self._tail) :]
            yield lead + _text(place.step.then, place.frame).encode()

    def may_end(self) -> bool:
        """Whether the text is whole."""
        return self._ends and not self._tail

    @property
    def may_be_cut(self) -> bool:
        """There is no free text."""
        return False

    def keeps(self, ending: bytes, before: object) -> bool:
        """Whether one is where one was."""
        return (
            isinstance(before, EbnfReader)
            and not self._lost
            and not self._tail
            and not before._tail
            and self._ends == before._ends
            and self._places.keys() == before._places.keys()
        )


def ebnf_reader(rules: Rules) -> Step | None:
    """Where texts of a grammar begin; ``None`` if a rule begins with itself by way of another."""
    looped = {name: _looped(name, node) for name, node in rules.items()}
    if _is_left_recursive(looped):
        return None
    builder = _Builder(looped)
    builder.measure()
    return builder.entries[ROOT]


def _started(rules: Rules) -> EbnfReader:
    first = ebnf_reader(rules)
    assert first is not None
    return EbnfReader.start(first, rules)


# -- stacks ----------------------------------------------------------------------------------------


def closed(
    begun: Iterable[tuple[Step | None, Frame]],
) -> tuple[dict[tuple[int, int], Place], bool]:
    """The characters that may come next, and whether the text may end."""
    places: dict[tuple[int, int], Place] = {}
    seen: set[tuple[int, int]] = set()
    ends = False
    todo = list(begun)
    while todo:
        step, frame = todo.pop()
        key = (id(step), id(frame))
        if key in seen:
            continue
        seen.add(key)
        if step is None:
            if frame.parent is None:
                ends = True
            else:
                todo.append((frame.then, frame.parent))
        elif step.options:
            todo += [(option, frame) for option in step.options]
        elif step.called is not None:
            inner = frame if step.then is None else frame.pushed(step.then)
            todo.append((step.called, inner))
        else:
            places[key] = Place(step, frame)
    return places, ends


def _text(step: Step | None, frame: Frame) -> str:
    """The least text that empties a stack."""
    parts: list[str] = []
    below: list[Step | None] = []
    while frame.parent is not None:
        below.append(frame.then)
        frame = frame.parent
    todo = [*reversed(below), step]
    while todo:
        step = todo.pop()
        while step is not None:
            if step.options:
                step = step.best
                continue
            if step.called is not None:
                todo += [step.then]
                step = step.called
                continue
            parts.append(step.text)
            step = step.then
    return "".join(parts)


def _split(data: bytes) -> tuple[str, bytes]:
    """Whole characters, and the bytes of one that is not whole."""
    for back in range(1, min(4, len(data) + 1)):
        lead = data[-back]
        if lead >= 0xC0:
            if back < (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4):
                return data[:-back].decode(), data[-back:]
            break
        if lead < 0x80:
            break
    return data.decode(), b""


def _with_prefix(ranges: Ranges, prefix: bytes) -> bytes | None:
    """A character of some ranges whose first bytes are given."""
    lead = prefix[0]
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    code = lead & (0x7F >> size)
    for byte in prefix[1:]:
        code = code << 6 | byte & 0x3F
    shift = 6 * (size - len(prefix))
    least = (0, 0, 0x80, 0x800, 0x10000)[size]
    low, high = max(code << shift, least), (code << shift) + (1 << shift) - 1
    for first, last in ranges:
        if max(first, low) <= min(last, high):
            return chr(max(first, low)).encode()
    return None


# -- building --------------------------------------------------------------------------------------


class _Builder:
    """Steps of all rules."""

    def __init__(self, rules: Rules) -> None:
        self._steps: list[Step] = []
        # A choice of one stands for each rule, so that rules can be named before they are built.
        self.entries = {name: self._step(None) for name in rules}
        for name, node in rules.items():
            self.entries[name].options = [self._built(node, None)]

    def _step(self, then: Step | None) -> Step:
        self._steps.append(Step(then))
        return self._steps[-1]

    def _built(self, node: Node, then: Step | None) -> Step | None:
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                then = self._built(part, then)
            return then
        if isinstance(node, Repeated):
            return self._repeated(node, then)
        step = self._step(then)
        if isinstance(node, Chars):
            step.ranges, step.text = node.ranges, _best(node.ranges)
        elif isinstance(node, Ref):
            step.called = self.entries[node.name]
        else:
            step.options = [self._built(option, then) for option in node.options]
        return step

    def _repeated(self, node: Repeated, then: Step | None) -> Step | None:
        if node.high is None:
            loop = self._step(None)
            loop.options = [then]
            loop.options.append(self._built(node.part, loop))
            then = loop
        else:
            end = then
            for _ in range(node.high - node.low):
                fork = self._step(None)
                fork.options = [end, self._built(node.part, then)]
                then = fork
        for _ in range(node.low):
            then = self._built(node.part, then)
        return then

    def measure(self) -> None:
        """Finds the least text of each step: values sink until none sinks any more."""
        changed = True
        while changed:
            changed = False
            for step in self._steps:
                best = step.best
                if step.options:
                    best = min(step.options, key=_least)
                    least = _least(best)
                elif step.called is not None:
                    least = step.called.least + _least(step.then)
                else:
                    least = (len(step.text.encode()) or FAR) + _least(step.then)
                if least < step.least:
                    step.least, step.best, changed = least, best, True


def _best(ranges: Ranges) -> str:
    """The shortest character, of those one that reads well."""
    if not ranges:
        return ""
    for char in _LIKED:
        if has(ranges, ord(char)):
            return char
    return chr(max(ranges[0][0], min(0x21, ranges[0][1])))


def _looped(name: str, node: Node) -> Node:
    """A rule that begins with itself as a loop: ``a: a x | y`` is ``a: y x*``."""
    options = node.options if isinstance(node, Either) else (node,)
    first, rest = [], []
    for option in options:
        parts = option.parts if isinstance(option, Sequence) else (option,)
        if parts and isinstance(parts[0], Ref) and parts[0].name == name:
            rest.append(Sequence(parts[1:]))
        else:
            first.append(option)
    if not rest or not first:
        return node
    return Sequence((Either(tuple(first)), Repeated(Either(tuple(rest)), 0, None)))


def _is_left_recursive(rules: Rules) -> bool:
    empty: set[str] = set()
    while more := {n for n, node in rules.items() if n not in empty and _is_empty(node, empty)}:
        empty |= more
    heads = {name: set(_heads(node, empty)) for name, node in rules.items()}
    for name in rules:
        reached, todo = set[str](), [name]
        while todo:
            for other in heads[todo.pop()] - reached:
                reached.add(other)
                todo.append(other)
        if name in reached:
            return True
    return False


def _is_empty(node: Node, empty: set[str]) -> bool:
    """Whether a node matches the empty text."""
    if isinstance(node, Ref):
        return node.name in empty
    if isinstance(node, Sequence):
        return all(_is_empty(part, empty) for part in node.parts)
    if isinstance(node, Either):
        return any(_is_empty(option, empty) for option in node.options)
    return isinstance(node, Repeated) and (node.low == 0 or _is_empty(node.part, empty))


def _heads(node: Node, empty: set[str]) -> Iterator[str]:
    """The rules that may come first."""
    if isinstance(node, Sequence):
        for part in node.parts:
            yield from _heads(part, empty)
            if not _is_empty(part, empty):
                return
    elif isinstance(node, Ref):
        yield node.name
    elif isinstance(node, Either):
        for option in node.options:
            yield from _heads(option, empty)
    elif isinstance(node, Repeated):
        yield from _heads(node.part, empty)
