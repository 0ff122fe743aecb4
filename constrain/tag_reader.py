"""Reads free text with tagged JSON in it: in which tag one is, and how the output could end."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .json_reader import JsonSchemaReader
from .json_text import Mode, missing_bytes
from .tag_plan import TagPlan

_NUMBER = b"-+.eE0123456789"


@dataclass(frozen=True, kw_only=True)
class TaggedJson:
    """A tag's JSON: a reader at its beginning, its shortest text, and whether the grammar takes
    more than is right."""

    reader: JsonSchemaReader
    least: bytes
    exacting: bool


class Free(NamedTuple):
    """In free text. ``tail`` is its end; ``done`` says that a run has been written."""

    tail: bytes
    done: bool


class Fixed(NamedTuple):
    """Within fixed text, of which ``left`` is missing, before or after the JSON of a tag."""

    tag: int
    left: bytes
    before: bool


class Inside(NamedTuple):
    """Within the JSON of a tag."""

    tag: int
    reader: JsonSchemaReader


class Closing(NamedTuple):
    """Within the text that closes a run; with nothing ``left``, at the end of the output."""

    left: bytes


Place = Free | Fixed | Inside | Closing


class TagReader:
    """A beginning of an output. See ``ending_matcher.Reader``. Takes texts with marks for control
    tokens. ``places`` are all those where one may be: few."""

    __slots__ = ("_always", "_json", "_plan", "places")

    def __init__(
        self, plan: TagPlan, tagged: Sequence[TaggedJson], places: Sequence[Place] | None = None
    ) -> None:
        self._plan = plan
        self._json = tagged
        self.places = tuple(self._start() if places is None else places)
        self._always = any(each.exacting for each in tagged)

    @property
    def exacting(self) -> bool:
        """See ``ending_matcher.Reader``."""
        return self._always or any(place.reader.exacting for place in self.inside)

    def _start(self) -> Iterator[Place]:
        if self._plan.free_text:
            yield Free(b"", False)
            return
        for tag, begin in enumerate(self._plan.begins):
            yield Fixed(tag, self._plan.prefix + begin, True)
        if not self._plan.required:
            yield _END

    @property
    def inside(self) -> tuple[Inside, ...]:
        """The tags in whose JSON one may be, each with its reader."""
        return tuple(place for place in self.places if isinstance(place, Inside))

    def feed(self, data: bytes) -> TagReader:
        """After more text; ``ValueError`` for what must not be written."""
        reached = _distinct(then for place in self.places for then in self._after(place, data))
        if not reached:
            raise ValueError(f"not to be written here: {data!r}")
        if any(isinstance(place, Inside) for place in reached):
            # What can be a tag is one, and no free text.
            reached = [place for place in reached if not isinstance(place, Free)]
        return TagReader(self._plan, self._json, reached)

    def endings(self) -> Iterator[bytes]:
        """Texts that would complete the output, short ones first where they are known at once."""
        short = [text for place in self.places for text in self._fixed_ending(place)]
        inner = (self._inner_endings(place) for place in self.places if isinstance(place, Inside))
        return heapq.merge(sorted(short, key=len), *inner, key=len)

    def may_end(self) -> bool:
        """Whether the output may end, where the grammar lets it."""
        return any(
            (isinstance(place, Free) and (place.done or not self._plan.required))
            or place == _END
            or (isinstance(place, Inside) and place.reader.may_end())
            for place in self.places
        )

    @property
    def may_be_cut(self) -> bool:
        """Whether one may be in free text that need not be followed by a tag."""
        return any(
            isinstance(place, Free) and (place.done or not self._plan.required)
            for place in self.places
        )

    def keeps(self, ending: bytes, before: object) -> bool:
        """Whether an ending of ``before`` is plainly one here too."""
        if not isinstance(before, TagReader) or len(self.places) != 1 or len(before.places) != 1:
            return False
        here, there = self.places[0], before.places[0]
        if isinstance(here, Free) and isinstance(there, Free):
            return here.done == there.done and not ending and not missing_bytes(here.tail)
        if isinstance(here, Inside) and isinstance(there, Inside) and here.tag == there.tag:
            tail = self._tail(here.tag)
            inner = ending[: len(ending) - len(tail)]
            return ending.endswith(tail) and here.reader.keeps(inner, there.reader)
        return False

    # -- moving on -------------------------------------------------------------------------------

    def _after(self, place: Place, data: bytes) -> Iterator[Place]:
        """Where one may be after more text."""
        if isinstance(place, Free):
            yield from self._in_free_text(place, data)
        elif isinstance(place, Inside):
            yield from self._in_json(place, data)
        elif place == _END:
            if not data:
                yield place
        elif place.left.startswith(data) and len(place.left) > len(data):
            yield place._replace(left=place.left[len(data) :])
        elif data.startswith(place.left):
            rest = data[len(place.left) :]
            for then in self._passed(place):
                yield from self._after(then, rest)

    def _passed(self, place: Fixed | Closing) -> Iterator[Place]:
        """Where one is after fixed text."""
        plan = self._plan
        then = Free(b"", True) if plan.free_text and not plan.once else _END
        if isinstance(place, Closing):
            yield then
        elif place.before:
            yield Inside(place.tag, self._json[place.tag].reader)
        else:
            if not plan.once:
                for tag, begin in enumerate(plan.begins):
                    yield Fixed(tag, plan.separator + begin, True)
            yield Closing(plan.suffix) if plan.suffix else then

    def _in_free_text(self, place: Free, data: bytes) -> Iterator[Place]:
        plan = self._plan
        text = place.tail + data
        first = len(text) + 1
        tags: dict[int, bytes] = {}
        for trigger in plan.triggers:
            at = text.find(trigger.text)
            stop = at + len(trigger.text)
            if at < 0 or stop > first:
                continue
            if stop < first:
                first, tags = stop, {}
            for tag in trigger.tags:
                tags[tag] = (plan.prefix + plan.begins[tag])[len(trigger.text) :]
        if first <= len(text):
            for tag, left in tags.items():
                yield from self._after(Fixed(tag, left, True), text[first:])
            return
        longest = max((len(each.text) for each in plan.triggers), default=0)
        yield Free(text[-max(longest - 1, 4) :], place.done)

    def _in_json(self, place: Inside, data: bytes) -> Iterator[Place]:
        reader = place.reader
        try:
            whole = reader.feed(data)
            if not _is_closed(whole):
                yield Inside(place.tag, whole)
                return
        except (ValueError, OverflowError):
            pass
        for at in range(len(data)):
            number = reader.state.mode is Mode.NUMBER and not reader.state.stack
            if number and data[at] not in _NUMBER:
                yield from self._closed(place.tag, reader, data[at:])
                return
            try:
                reader = reader.feed(data[at : at + 1])
            except (ValueError, OverflowError):
                return
            if _is_closed(reader):
                yield from self._closed(place.tag, reader, data[at + 1 :])
                return

    def _closed(self, tag: int, reader: JsonSchemaReader, rest: bytes) -> Iterator[Place]:
        """After a tag's JSON."""
        if not reader.may_end():
            return
        yield from self._after(Fixed(tag, self._plan.ends[tag], False), rest)

    # -- coming to an end ------------------------------------------------------------------------

    def _tail(self, tag: int) -> bytes:
        """What follows the JSON of a tag, at least."""
        return self._plan.ends[tag] + self._plan.suffix

    def _fixed_ending(self, place: Place) -> Iterator[bytes]:
        plan = self._plan
        if isinstance(place, Fixed) and place.before:
            yield place.left + self._json[place.tag].least + self._tail(place.tag)
        elif isinstance(place, Fixed):
            yield place.left + plan.suffix
        elif isinstance(place, Closing):
            yield place.left
        elif isinstance(place, Free):
            filler = missing_bytes(place.tail)
            if place.done or not plan.required:
                yield filler
                return
            for tag in sorted({tag for each in plan.triggers for tag in each.tags}):
                lead = plan.prefix + plan.begins[tag]
                yield filler + lead + self._json[tag].least + self._tail(tag)

    def _inner_endings(self, place: Inside) -> Iterator[bytes]:
        tail = self._tail(place.tag)
        return (text + tail for text in place.reader.endings())


_END = Closing(b"")


def _is_closed(reader: JsonSchemaReader) -> bool:
    return reader.state.mode is Mode.AFTER and not reader.state.stack


def _distinct(places: Iterable[Place]) -> list[Place]:
    """Places, each once: texts that are the same lead to the same."""
    found: list[Place] = []
    known: set[object] = set()
    for place in places:
        key = (place.tag, place.reader.state) if isinstance(place, Inside) else place
        if key not in known:
            known.add(key)
            found.append(place)
    return found
