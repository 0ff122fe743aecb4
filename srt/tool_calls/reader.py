"""Reads calls out of a model's text while it comes.

What is let out does not depend on how the text was cut: the pieces of a stream, joined, are the
answer that is not streamed. Only what may yet become a part of a call is held back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from .layout import Layout

BLANKS = " \t\r\n"
State = Literal["text", "open", "arguments", "tail", "next"]


class ContentPiece(NamedTuple):
    """More of the text beside the calls."""

    text: str


class CallStart(NamedTuple):
    """A call whose function is known; ``call`` is its place in the answer."""

    call: int
    name: str


class ArgumentsPiece(NamedTuple):
    """More of a call's arguments."""

    call: int
    text: str


Event = ContentPiece | CallStart | ArgumentsPiece


class CallReader:
    """One answer's calls. ``forced``: it begins with a call, or has none.

    Text that only looks like the beginning of a call is content. Blanks around calls are no
    content. A call that is cut before its function is known is dropped; one that is cut later has
    the arguments that came.
    """

    __slots__ = (
        "_after_calls",
        "_blanks",
        "_buffer",
        "_depth",
        "_escaped",
        "_first",
        "_forced",
        "_in_string",
        "_layout",
        "_more",
        "_state",
        "_triggers",
        "n_calls",
    )

    def __init__(self, layout: Layout, names: Sequence[str], *, forced: bool = False) -> None:
        self._layout = layout
        begins = layout.begins(names, forced=forced)
        self._first = {layout.prefix + begin: name for begin, name in begins.items()}
        self._more = {layout.separator + begin: name for begin, name in begins.items()}
        self._forced = forced
        self._triggers = () if forced else layout.marks(names)
        self._state: State = "open" if forced else "text"
        self._buffer = ""
        self._blanks = ""
        self._after_calls = False
        self._depth = 0
        self._in_string = self._escaped = False
        self.n_calls = 0

    @property
    def complete(self) -> bool:
        """Whether there are calls, and all their arguments have come to their end."""
        return self.n_calls > 0 and self._state != "arguments"

    def feed(self, text: str) -> list[Event]:
        """What more text brings."""
        self._buffer += text
        events: list[Event] = []
        while self._buffer and self._step(events):
            pass
        return joined(events)

    def end(self) -> list[Event]:
        """What was held back, now that nothing more comes."""
        events: list[Event] = []
        if self._state == "next":
            if self._forced or self._layout.suffix:
                self._buffer = ""  # nothing but another call could have come
            self._leave_calls()
        while self._buffer and self._step(events):
            pass
        if self._state == "text":
            rest = self._buffer.lstrip(BLANKS) if self._after_calls else self._buffer
            events.append(ContentPiece(rest))
        self._buffer = ""
        return joined(events)

    def _step(self, events: list[Event]) -> bool:
        """Reads on in the buffer; ``False`` where more text is needed first."""
        if self._state == "text":
            return self._text(events)
        if self._state == "open":
            return self._open(events)
        if self._state == "arguments":
            return self._arguments(events)
        if self._state == "tail":
            return self._tail()
        return self._next(events)

    def _text(self, events: list[Event]) -> bool:
        buffer = self._buffer
        if self._after_calls:
            buffer = self._buffer = buffer.lstrip(BLANKS)
        places = [at for t in self._triggers if (at := buffer.find(t)) >= 0]
        end = min(places, default=len(buffer) - _held(buffer, self._triggers))
        shown = buffer[:end].rstrip(BLANKS)
        self._show(shown, events)
        if not places:
            self._buffer = buffer[len(shown) :]
            return False
        self._blanks = buffer[len(shown) : end]
        self._buffer = buffer[end:]
        self._state = "open"
        return True

    def _show(self, text: str, events: list[Event]) -> None:
        if text:
            self._after_calls = False
            events.append(ContentPiece(text))

    def _open(self, events: list[Event]) -> bool:
        if self._started(self._first, events):
            return True
        if _may_become(self._buffer, self._first):
            return False
        # No call after all: what looked like one is text, beginning with its first character.
        self._show(self._blanks + self._buffer[0], events)
        self._buffer = self._buffer[1:]
        self._state = "text"
        return True

    def _started(self, begins: Mapping[str, str], events: list[Event]) -> bool:
        for begin, name in begins.items():
            if self._buffer.startswith(begin):
                self._buffer = self._buffer[len(begin) :]
                events.append(CallStart(self.n_calls, name))
                self.n_calls += 1
                self._state = "arguments"
                self._depth = 0
                return True
        return False

    def _arguments(self, events: list[Event]) -> bool:
        end = self._value_end()
        events.append(ArgumentsPiece(self.n_calls - 1, self._buffer[:end]))
        self._buffer = self._buffer[end:]
        return self._state == "tail"

    def _value_end(self) -> int:
        """Where in the buffer the JSON object ends, which may have begun before it."""
        for at, char in enumerate(self._buffer):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = char == "\\"
                self._in_string = char != '"'
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._state = "tail"
                    return at + 1
        return len(self._buffer)

    def _tail(self) -> bool:
        tail = self._layout.tail
        if self._buffer.startswith(tail):
            self._buffer = self._buffer[len(tail) :]
            self._state = "next"
            return True
        if tail.startswith(self._buffer):
            return False
        self._leave_calls()
        return True

    def _next(self, events: list[Event]) -> bool:
        suffix = self._layout.suffix
        if self._started(self._more, events):
            return True
        if suffix and self._buffer.startswith(suffix):
            self._buffer = self._buffer[len(suffix) :]
        elif _may_become(self._buffer, self._more) or suffix.startswith(self._buffer):
            return False
        self._leave_calls()
        return True

    def _leave_calls(self) -> None:
        self._state = "text"
        self._after_calls = True


def _may_become(buffer: str, texts: Mapping[str, str]) -> bool:
    return any(text.startswith(buffer) for text in texts)


def _held(buffer: str, triggers: Sequence[str]) -> int:
    """Characters at the end of a text that may be a trigger's beginning."""
    longest = max(map(len, triggers), default=1) - 1
    for size in range(min(longest, len(buffer)), 0, -1):
        end = buffer[-size:]
        if any(trigger.startswith(end) for trigger in triggers):
            return size
    return 0


def joined(events: Sequence[Event]) -> list[Event]:
    """The same events, with neighbours of one kind joined and empty pieces left out."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, CallStart):
            out.append(event)
        elif not event.text:
            continue
        elif isinstance(event, ContentPiece) and isinstance(last, ContentPiece):
            out[-1] = ContentPiece(last.text + event.text)
        elif isinstance(event, ArgumentsPiece) and isinstance(last, ArgumentsPiece):
            out[-1] = ArgumentsPiece(last.call, last.text + event.text)
        else:
            out.append(event)
    return out
