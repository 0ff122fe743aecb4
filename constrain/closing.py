"""How a JSON text that has been begun can end: short ways, from the schema.

The schema is walked along what is open, and at each level what is still missing is added: the rest
of a string or number, required keys, items, brackets. Where there are several ways the shortest
come first. Nothing is promised: keywords of other values, and what an engine does not take, are
left to whoever asks, who checks each way before it is used.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from .evaluate import satisfies
from .json_text import Frame, JsonText, Mode, missing_bytes
from .relax import subschemas
from .scalar_text import is_plain_string, number_endings, string_endings
from .shape import Conjunction, Shape, Shapes
from .text_pattern import pattern, shortest

MAX_NESTED = 24
"""Deepest nesting of values that are made up."""

MAX_MADE_UP = 1000
"""Alternatives of which values are made up for one text: a bound on the work."""

MAX_LONG = 1_000_000
"""Characters of a made-up value: more fit no context, and nested pairs double at each level."""

_WAYS = 8
"""Ways that are looked at where values may differ from each other."""

_JUDGED_WAYS = 48
"""Ways that are looked at for one that satisfies the whole schema of a value."""

_NAMES = "abcdefghijklmnopqrstuvwxyz"


class Closer:
    """Ends texts of one schema. One caller at a time."""

    __slots__ = ("_declared", "_document", "_left", "_open", "_root", "_shapes", "_values")

    def __init__(self, root: Any) -> None:
        self._document = root
        self._root: Conjunction = (root,) if isinstance(root, dict) else ()
        self._shapes = Shapes(root)
        self._declared: dict[str, list[Any]] | None = None
        self._values: dict[tuple[int, ...], tuple[Conjunction, list[str]]] = {}
        self._open: set[tuple[int, ...]] = set()
        self._left = MAX_MADE_UP

    def __reduce__(self) -> Any:
        return Closer, (self._document,)  # what it remembers goes by the identity of schemas

    def endings(self, state: JsonText) -> Iterator[bytes]:
        """Texts that would end the document, each different, short ones first."""
        self._left = MAX_MADE_UP
        filler = missing_bytes(state.text)
        seen: set[str] = set()
        for each in _fillers(filler, state.text[-1:]):
            whole = state.feed(each) if each else state
            for text in self._value(whole, 0, self._root):
                if text not in seen:
                    seen.add(text)
                    yield each + text.encode("utf-8", "surrogatepass")
            if seen:
                return

    def in_plain_string(self, state: JsonText) -> bool:
        """Whether the string that is open may be any text, whatever the union that it is in."""
        found = [self._root]
        for frame in state.stack:
            inner: list[Conjunction] = []
            for conjunction in found:
                for shape in self._shapes.of(conjunction):
                    if _fits(shape, frame, state.text, self._shapes):
                        child = _child(shape, frame)
                        if child is not None:
                            inner.append(child)
            found = inner
        shapes = [s for each in found for s in self._shapes.of(each) if "string" in s.types]
        return bool(shapes) and all(is_plain_string(shape) for shape in shapes)

    # -- what is open ----------------------------------------------------------------------------

    def _value(self, state: JsonText, level: int, schemas: Conjunction) -> Iterator[str]:
        """Ends the value that is open at a level, or writes it if nothing is open there."""
        if level == len(state.stack):
            if state.mode in (Mode.STRING, Mode.NUMBER, Mode.LITERAL):
                ways = _shortest_first(
                    self._scalar(state, shape) for shape in self._shapes.of(schemas)
                )
                yield from self._judged(ways, state.text[state.at :], schemas)
            elif state.mode is Mode.AFTER:
                yield ""
            else:
                lead = " " if state.stack and not _is_blank(state.text[-1:]) else ""
                lead = "" if state.mode is Mode.FIRST_ITEM else lead
                yield from (lead + text for text in self.values(schemas))
            return
        frame = state.stack[level]
        ways = _shortest_first(
            self._container(state, level, shape)
            for shape in self._shapes.of(schemas)
            if _fits(shape, frame, state.text, self._shapes)
        )
        yield from self._judged(ways, state.text[frame.start :], schemas)

    def _judged(self, ways: Iterator[str], begun: bytes, schemas: Conjunction) -> Iterator[str]:
        """The ways to end a value that has been begun with which it satisfies its schemas, where
        these say more than its alternatives do."""
        if not self._shapes.judged(schemas):
            yield from ways
            return
        head = begun.decode("utf-8", "replace")
        for text in itertools.islice(ways, _JUDGED_WAYS):
            if self._holds(head + text, schemas):
                yield text

    def _holds(self, text: str, schemas: Conjunction) -> bool:
        """Whether the value of a text satisfies schemas, whole."""
        try:
            value = json.loads(text)
        except ValueError:
            return False
        return all(satisfies(value, schema, self._document) for schema in schemas)

    def _scalar(self, state: JsonText, shape: Shape) -> Iterator[str]:
        begun = state.text[state.at :].decode("utf-8", "replace")
        if shape.options is not None:
            yield from _rests(shape.options, begun)
        elif state.mode is Mode.LITERAL:
            yield from _rests(_literals(shape), begun)
        elif state.mode is Mode.NUMBER:
            if shape.types & {"integer", "number"}:
                yield from number_endings(shape, begun)
        elif "string" in shape.types:
            yield from string_endings(shape, begun[1:], state.escape)

    def _container(self, state: JsonText, level: int, shape: Shape) -> Iterator[str]:
        frame = state.stack[level]
        if shape.options is not None:
            yield from _rests(shape.options, state.text[frame.start :].decode("utf-8", "replace"))
        elif frame.is_object:
            yield from self._object(state, level, shape)
        else:
            yield from self._array(state, level, shape)

    def _object(self, state: JsonText, level: int, shape: Shape) -> Iterator[str]:
        frame = state.stack[level]
        keys, text = frame.keys, state.text
        inner = level == len(state.stack) - 1
        if inner and state.mode in (Mode.AFTER, Mode.FIRST_KEY):
            yield from self._rest_of_object(shape, keys)
            return
        if inner and state.mode in (Mode.KEY, Mode.IN_KEY, Mode.COLON):
            heads = self._heads(state, frame, shape)
            yield from _crossed(
                (head, self._rest_of_object(shape, (*keys, key))) for head, key in heads
            )
            return
        assert frame.key is not None
        child = shape.child(frame.key)
        if child is None:
            return
        then = (*keys, frame.key)
        lead = " " if inner and state.mode is Mode.VALUE and not _is_blank(text[-1:]) else ""
        values: Iterable[str] = (
            (lead + each for each in self.values(child))
            if inner and state.mode is Mode.VALUE
            else self._value(state, level + 1, child)
        )
        yield from _crossed((value, self._rest_of_object(shape, then)) for value in values)

    def _heads(self, state: JsonText, frame: Frame, shape: Shape) -> Iterator[tuple[str, str]]:
        """Ends or writes a key and its value: the text, and the key."""
        blank = "" if _is_blank(state.text[-1:]) else " "
        if state.mode is Mode.COLON:
            assert frame.key is not None
            child = shape.child(frame.key)
            if child is not None:
                yield from ((f": {value}", frame.key) for value in self.values(child))
            return
        begun = (
            state.text[state.at :].decode("utf-8", "replace") if state.mode is Mode.IN_KEY else ""
        )
        for key in self._keys(shape, frame.keys, begun, state.escape):
            child = shape.child(key)
            written = json.dumps(key, ensure_ascii=False)
            if child is None or not written.startswith(begun):
                continue
            lead = blank if state.mode is Mode.KEY else ""
            likely = [] if key in shape.order else self._likely(key, child)
            for value in (*likely, *itertools.islice(self.values(child), _WAYS)):
                yield f"{lead}{written[len(begun) :]}: {value}", key

    def _likely(self, key: str, child: Conjunction) -> list[str]:
        """Values of a key that is not declared here, as the document declares it elsewhere."""
        elsewhere = self._elsewhere.get(key, ())
        return [text for each in elsewhere[:_WAYS] for text in self._few((*child, each))[:2]]

    @property
    def _elsewhere(self) -> dict[str, list[Any]]:
        """What the document says of a key anywhere."""
        if self._declared is None:
            found: dict[str, list[Any]] = {}
            for schema in subschemas(self._document):
                declared = schema.get("properties")
                for key, each in declared.items() if isinstance(declared, dict) else ():
                    if isinstance(each, dict) and each:
                        found.setdefault(key, []).append(each)
            self._declared = found
        return self._declared

    def _keys(self, shape: Shape, keys: tuple[str, ...], begun: str, escape: int) -> Iterator[str]:
        """Keys that may come next and begin as told: required ones first."""
        last = _last(shape, keys)
        declared = [key for key, place in shape.order.items() if place > last and key not in keys]
        missing = [key for key in declared if key in shape.required]
        yield from missing
        stop = shape.order[missing[0]] if missing else len(shape.order)
        yield from (key for key in declared if shape.order[key] < stop)
        if missing and not begun:
            return
        yield from (key for key in self._new_names(shape, begun[1:], escape) if key not in keys)

    def _new_names(self, shape: Shape, begun: str = "", escape: int = 0) -> Iterator[str]:
        """Names that are not declared and may be used."""
        ends = "n" if escape < 0 else "0001"[4 - escape :] if escape else ""
        try:
            content = json.loads(f'"{begun}{ends}"')
        except ValueError:
            return
        names = [each for each in shape.all("propertyNames") if isinstance(each, dict)]
        for each in self._shapes.of(tuple(names)) if names else ():
            if each.options is not None:
                yield from (json.loads(option) for option in each.options)
                continue
            for ending in itertools.islice(string_endings(each, content), _WAYS):
                yield json.loads(f'"{json.dumps(content)[1:-1]}{ending}')
        if names:
            return
        for parts in shape.all("patternProperties"):
            for expression in parts:
                found = pattern(expression)
                for more in ("", "0", "1", "a", "b"):
                    rest = found and shortest([found], content + more)
                    if rest is not None:
                        yield content + more + rest
        for more in ("", *self._tails(content), *_NAMES):
            name = content + more
            if (name or begun) and name not in shape.order:
                yield name

    def _tails(self, content: str) -> list[str]:
        """What follows in names that begin so, and that the document declares anywhere."""
        if not any(self._shapes.judged((each,)) for each in self._root):
            return []
        found = (key[len(content) :] for key in self._elsewhere if key.startswith(content))
        return list(itertools.islice(found, _WAYS * 2))

    # -- what is missing -------------------------------------------------------------------------

    def _rest_of_object(self, shape: Shape, keys: tuple[str, ...]) -> Iterator[str]:
        """Ends an object after the values of some keys: with what is required, then with more."""
        most = shape.most("maxProperties")
        wanted = self._missing(shape, keys, ())
        last = _last(shape, keys)
        if any(shape.order.get(key, last) < last for key in wanted):
            return
        optional = [k for k, place in shape.order.items() if place > last and k not in wanted]
        ways: list[tuple[str, ...]] = [()]
        ways += [(key,) for key in optional[:_WAYS]]
        for extra in ways:
            names = self._missing(shape, keys, extra) if extra else wanted
            count = shape.least("minProperties") - len(keys) - len(names)
            if count > 0:
                more = [
                    key for key in optional if key not in names and shape.child(key) is not None
                ]
                names = [*names, *more[:count]]
            names.sort(key=lambda key: shape.order.get(key, len(shape.order)))
            count = shape.least("minProperties") - len(keys) - len(names)
            if count > 0:
                fresh = (n for n in self._new_names(shape) if n not in keys and n not in names)
                names = [*names, *itertools.islice(fresh, count)]
            if most is not None and len(keys) + len(names) > most:
                continue
            yield from self._members(shape, names, first=not keys)

    def _missing(self, shape: Shape, keys: tuple[str, ...], extra: tuple[str, ...]) -> list[str]:
        """Keys that have to be added, ``extra`` among them."""
        todo = [*shape.required, *extra]
        for key in keys:
            todo += shape.dependent.get(key, ())
        found: dict[str, None] = {}
        while todo:
            key = todo.pop(0)
            if key not in keys and key not in found:
                found[key] = None
                todo += shape.dependent.get(key, ())
        return list(found)

    def _members(self, shape: Shape, names: list[str], first: bool) -> Iterator[str]:
        """The members of some names and the bracket: with the least values, then with others."""
        choices: list[list[str]] = []
        for name in names:
            child = shape.child(name)
            values = [] if child is None else self._few(child)
            if not values:
                return
            choices.append(values)
        heads = [f"{json.dumps(name, ensure_ascii=False)}: " for name in names]
        for chosen in itertools.islice(_near_first(choices), _WAYS * 2):
            members = [head + value for head, value in zip(heads, chosen, strict=True)]
            lead = "" if first or not members else ", "
            yield lead + ", ".join(members) + "}"

    def _array(self, state: JsonText, level: int, shape: Shape) -> Iterator[str]:
        frame = state.stack[level]
        texts = [state.text[a:b].decode("utf-8", "replace") for a, b in frame.spans]
        inner = level == len(state.stack) - 1
        if inner and state.mode in (Mode.AFTER, Mode.FIRST_ITEM):
            yield from self._rest_of_array(shape, texts)
            return
        child = shape.item(len(texts))
        if child is None:
            return
        begun = (
            ""
            if inner and state.mode is Mode.VALUE
            else state.text[frame.at :].decode("utf-8", "replace")
        )
        yield from _crossed(
            (value, self._rest_of_array(shape, [*texts, (begun + value).strip()]))
            for value in self._value(state, level + 1, child)
        )

    def _rest_of_array(self, shape: Shape, texts: list[str]) -> Iterator[str]:
        """Ends an array after some items: with as many as are required, then with more."""
        low, high = shape.least("minItems"), shape.most("maxItems")
        unique = any(shape.all("uniqueItems"))
        lead = ", " if texts else ""
        missing = max(0, low - len(texts))
        contained = [each for each in shape.all("contains") if isinstance(each, dict)]
        counts = shape.all("minContains") or [1]
        ways: list[list[Conjunction]] = [[()] * missing]
        if contained:
            for count in range(1, max(counts) + 1):
                extra: list[Conjunction] = [(each,) for each in contained] * count
                ways.append([*extra, *[()] * max(0, missing - len(extra))])
        ways.append([()] * (missing + 1))
        for way in ways:
            if high is not None and len(texts) + len(way) > high:
                continue
            items = self._items(shape, texts, way, unique)
            if items is not None:
                yield (lead if items else "") + ", ".join(items) + "]"

    def _items(
        self, shape: Shape, texts: list[str], way: list[Conjunction], unique: bool
    ) -> list[str] | None:
        """The least texts of some more items; ``None`` if there are none."""
        items: list[str] = []
        for extra in way:
            child = shape.item(len(texts) + len(items))
            if child is None:
                return None
            values: Iterable[str] = self._few((*child, *extra))
            if unique:
                used = {*texts, *items}
                values = itertools.islice(self.values((*child, *extra)), len(used) + 64)
                values = (value for value in values if value not in used)
            found = next(iter(values), None)
            if found is None:
                return None
            items.append(found)
        return items

    # -- values made up --------------------------------------------------------------------------

    def values(self, schemas: Conjunction) -> Iterator[str]:
        """Texts of values, short ones first; each different."""
        few = self._few(schemas)
        yield from few
        seen = set(few)
        judged = self._shapes.judged(schemas)
        for text in _in_turns([self._fresh(shape) for shape in self._shapes.of(schemas)]):
            if text not in seen and (not judged or self._holds(text, schemas)):
                seen.add(text)
                yield text

    def _few(self, schemas: Conjunction) -> list[str]:
        """A few texts of values, the shortest known first.

        A value that holds another of the same schemas is never the shortest, so that where schemas
        are met again within themselves they are given none. What then comes out without any text
        is not remembered: it may have some elsewhere.
        """
        key = tuple(map(id, schemas))
        found = self._values.get(key)
        if found is not None:
            return found[1]
        if key in self._open or len(self._open) > MAX_NESTED or self._left <= 0:
            return []
        self._open.add(key)
        texts: dict[str, None] = {}
        judged = self._shapes.judged(schemas)
        for shape in self._shapes.of(schemas):
            self._left -= 1
            ways = self._fresh(shape)
            if judged:
                ways = (t for t in itertools.islice(ways, _JUDGED_WAYS) if self._holds(t, schemas))
            texts.update((t, None) for t in itertools.islice(ways, 3) if len(t) <= MAX_LONG)
        self._open.discard(key)
        few = sorted(texts, key=len)[: _WAYS * 2]
        if few or not self._open:
            self._values[key] = (schemas, few)
        return few

    def _fresh(self, shape: Shape) -> Iterator[str]:
        if shape.options is not None:
            yield from sorted(shape.options, key=len)
            return
        types = shape.types
        ways: list[Iterator[str]] = []
        if types & {"integer", "number"}:
            ways.append(itertools.islice(number_endings(shape, ""), 40))
        if "string" in types:
            ways.append('"' + text for text in string_endings(shape, ""))
        if "array" in types:
            ways.append("[" + t for t in itertools.islice(self._rest_of_array(shape, []), 4))
        if "object" in types:
            ways.append("{" + t for t in itertools.islice(self._rest_of_object(shape, ()), 6))
        yield from _in_turns([*ways, iter(_literals(shape))])


def _fillers(least: bytes, last: bytes) -> Iterator[bytes]:
    """Bytes that finish a character, given the least: what may follow may not be any character."""
    yield least
    if least:
        stop = {b"\xed": 0xA0, b"\xf4": 0x90}.get(last, 0xC0)  # no surrogates, nor past the last
        for first in range(least[0], stop):
            yield bytes([first]) + (least[1:-1] + b"\xa5" if len(least) > 1 else b"")


def _literals(shape: Shape) -> list[str]:
    found = ["true", "false"] if "boolean" in shape.types else []
    return [*found, "null"] if "null" in shape.types else found


def _rests(options: Iterable[str], begun: str) -> Iterator[str]:
    found = [option[len(begun) :] for option in options if option.startswith(begun)]
    yield from sorted(found, key=len)


def _child(shape: Shape, frame: Frame) -> Conjunction | None:
    """What must hold for the value that is open in a container."""
    if not frame.is_object:
        return shape.item(len(frame.spans))
    return shape.child(frame.key) if frame.key is not None else None


def _last(shape: Shape, keys: tuple[str, ...]) -> int:
    """The place in the order of the last key: beyond all of them once a name that is not declared
    has been used, as such names come last."""
    places = [shape.order.get(key, len(shape.order)) for key in keys]
    return max(places, default=-1)


def _fits(shape: Shape, frame: Frame, text: bytes, shapes: Shapes) -> bool:
    """Whether what is closed in a container is no reason against a shape."""
    if ("object" if frame.is_object else "array") not in shape.types:
        return False
    if shape.options is not None or not frame.is_object:
        return True
    for key, (start, end) in zip(frame.keys, frame.spans, strict=True):
        child = shape.child(key)
        if child is None:
            return False
        for schema in child:
            if "const" in schema or "enum" in schema:
                options = shapes.of((schema,))[0].options if shapes.of((schema,)) else {}
                if (
                    options is not None
                    and text[start:end].decode("utf-8", "replace") not in options
                ):
                    return False
    return frame.key is None or shape.child(frame.key) is not None


def _shortest_first(ways: Iterable[Iterator[str]]) -> Iterator[str]:
    """The first text of each way, the shortest first; then what else the ways give, in turns."""
    rests: list[Iterator[str]] = []
    heads: list[str] = []
    for way in ways:
        head = next(way, None)
        if head is not None:
            heads.append(head)
            rests.append(way)
    yield from sorted(heads, key=len)
    yield from _in_turns(rests)


def _in_turns(ways: list[Iterator[str]]) -> Iterator[str]:
    while ways:
        left = []
        for way in ways:
            text = next(way, None)
            if text is not None:
                left.append(way)
                yield text
        ways = left


def _crossed(ways: Iterator[tuple[str, Iterator[str]]]) -> Iterator[str]:
    """Beginnings with what may follow each: the first few beginnings, each with the first that
    follows it; then these with others; then other beginnings."""
    few: list[tuple[str, Iterator[str]]] = []
    for head, tails in itertools.islice(ways, _WAYS // 2):
        tail = next(tails, None)
        if tail is not None:
            yield head + tail
            few.append((head, tails))
    for head, tails in few:
        yield from (head + tail for tail in itertools.islice(tails, _WAYS))
    for head, tails in ways:
        yield from (head + tail for tail in itertools.islice(tails, 2))


def _near_first(choices: list[list[str]]) -> Iterator[tuple[str, ...]]:
    """Combinations of one of each: all the first ones, then those in which one differs."""
    first = tuple(each[0] for each in choices)
    yield first
    for rank in range(1, max((len(each) for each in choices), default=0)):
        for place, each in enumerate(choices):
            if rank < len(each):
                yield (*first[:place], each[rank], *first[place + 1 :])


def _is_blank(text: bytes) -> bool:
    return text in (b" ", b"\n", b"\t", b"\r")
