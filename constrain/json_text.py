"""Where in a JSON text one is: an incremental reader that keeps what is open.

It checks nothing that a grammar checks already; it is told only text that a grammar has allowed.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import NamedTuple


class Mode(IntEnum):
    """What comes next."""

    VALUE = 0
    FIRST_ITEM = 1
    FIRST_KEY = 2
    KEY = 3
    IN_KEY = 4
    COLON = 5
    STRING = 6
    NUMBER = 7
    LITERAL = 8
    AFTER = 9


class Frame(NamedTuple):
    """An open object or array.

    ``start`` is where it opens. ``keys`` are those whose values are closed, ``spans`` the places of
    the closed values. ``key`` is that of the value which comes or is open, which begins at ``at``.
    """

    is_object: bool
    start: int
    keys: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    key: str | None = None
    at: int = 0


class JsonText(NamedTuple):
    """A beginning of a JSON text.

    ``at`` is where the open string, number or literal begins. ``escape`` is 0 outside of an
    escape sequence, -1 after a backslash, else the number of hexadecimal digits that are missing.
    """

    text: bytes = b""
    stack: tuple[Frame, ...] = ()
    mode: Mode = Mode.VALUE
    at: int = 0
    escape: int = 0

    @property
    def in_free_text(self) -> bool:
        """Within a string, outside of escapes and unfinished characters."""
        return self.mode is Mode.STRING and not self.escape and not missing_bytes(self.text)

    def feed(self, data: bytes) -> JsonText:
        """The state after more text.

        ``ValueError`` for what is no JSON, ``OverflowError`` for a number that no double can hold.
        """
        return _Reader(self).read(data)


class _Reader:
    """One call of ``feed``: the fields of a state, to be changed."""

    __slots__ = ("at", "escape", "mode", "stack", "text")

    def __init__(self, state: JsonText) -> None:
        self.text, stack, self.mode, self.at, self.escape = state
        self.stack = list(stack)

    def read(self, data: bytes) -> JsonText:
        start = len(self.text)
        self.text += data
        i, end = start, len(self.text)
        while i < end:
            if self.mode is Mode.STRING or self.mode is Mode.IN_KEY:
                i = self._in_string(i, end)
            elif self.mode is Mode.NUMBER:
                i = self._in_number(i, end)
            elif self.mode is Mode.LITERAL:
                i = self._in_literal(i, end)
            else:
                self._between(i)
                i += 1
        return JsonText(self.text, tuple(self.stack), self.mode, self.at, self.escape)

    def _in_string(self, i: int, end: int) -> int:
        text = self.text
        if self.escape:
            if self.escape > 0:
                self.escape -= 1
            else:
                self.escape = 4 if text[i] == _U else 0
            return i + 1
        quote = text.find(b'"', i)
        stop = quote if quote >= 0 else end
        slash = text.find(b"\\", i, stop)
        if slash >= 0:
            self.escape = -1
            return slash + 1
        if quote < 0:
            return end
        if self.mode is Mode.IN_KEY:
            key = json.loads(text[self.at : quote + 1])
            if key in self.stack[-1].keys:
                raise ValueError(f"the key {key!r} comes twice")
            self.stack[-1] = self.stack[-1]._replace(key=key)
            self.mode = Mode.COLON
        else:
            self._close(quote + 1)
        return quote + 1

    def _in_number(self, i: int, end: int) -> int:
        while i < end and self.text[i] in _NUMBER:
            i += 1
        if i < end:
            self._close(i)
        return i

    def _in_literal(self, i: int, end: int) -> int:
        length = 5 if self.text[self.at] == _F else 4
        stop = min(end, self.at + length)
        if stop - self.at == length:
            self._close(stop)
        return stop

    def _close(self, end: int) -> None:
        """The value that is open, or has just been closed, ends before ``end``."""
        if self.mode is Mode.NUMBER and not is_double(self.text[self.at : end]):
            raise OverflowError("a number that no double can hold")
        self.mode = Mode.AFTER
        if not self.stack:
            return
        top = self.stack[-1]
        keys = (*top.keys, top.key) if top.key is not None else top.keys
        self.stack[-1] = top._replace(keys=keys, spans=(*top.spans, (top.at, end)), key=None)

    def _between(self, i: int) -> None:
        """One byte that is not within a string, number or literal."""
        byte = self.text[i]
        if byte in _BLANK:
            return
        mode = self.mode
        if mode is Mode.VALUE or (mode is Mode.FIRST_ITEM and byte != _CLOSE_ARRAY):
            self._open(i, byte)
        elif mode in (Mode.KEY, Mode.FIRST_KEY) and byte == _QUOTE:
            self.mode, self.at = Mode.IN_KEY, i
        elif mode is Mode.COLON and byte == _COLON:
            self.mode = Mode.VALUE
        elif byte == _COMMA and mode is Mode.AFTER and self.stack:
            self.mode = Mode.KEY if self.stack[-1].is_object else Mode.VALUE
        elif byte in (_CLOSE_ARRAY, _CLOSE_OBJECT) and self.stack:
            self.stack.pop()
            self._close(i + 1)
        else:
            raise ValueError(f"no JSON: {bytes([byte])!r} after {self.text[:i][-40:]!r}")

    def _open(self, i: int, byte: int) -> None:
        if self.stack:
            self.stack[-1] = self.stack[-1]._replace(at=i)
        self.at = i
        if byte == _OPEN_OBJECT:
            self.stack.append(Frame(True, i))
            self.mode = Mode.FIRST_KEY
        elif byte == _OPEN_ARRAY:
            self.stack.append(Frame(False, i))
            self.mode = Mode.FIRST_ITEM
        elif byte == _QUOTE:
            self.mode = Mode.STRING
        elif byte in _NUMBER:
            self.mode = Mode.NUMBER
        elif byte in b"tfn":
            self.mode = Mode.LITERAL
        else:
            raise ValueError(f"no JSON: {bytes([byte])!r} where a value begins")


MAX_DIGITS = 17
"""Digits that tell all doubles apart."""


def is_double(number: bytes) -> bool:
    """Whether a number, or its beginning, is a whole one or can be held by a double.

    What reads JSON takes ``1e999`` for infinity and ``0.99999999999999999999`` for 1, and then the
    value is another than that which a schema has been asked about.
    """
    mantissa, mark, exponent = number.lower().partition(b"e")
    if not mark and b"." not in mantissa:
        return True
    digits = mantissa.replace(b".", b"").lstrip(b"-0")
    if len(digits) > MAX_DIGITS or len(exponent) > MAX_DIGITS:
        return False
    if not exponent.strip(b"+-"):
        return True
    value = float(number)
    return value - value == 0 and (value != 0 or not digits)


def missing_bytes(text: bytes) -> bytes:
    """Bytes that finish a character of UTF-8 of which only the first bytes are there."""
    for back in range(1, min(4, len(text)) + 1):
        lead = text[-back]
        if lead < 0x80:
            return b""
        if lead >= 0xC0:
            missing = (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4) - back
            if missing <= 0:
                return b""
            # The byte after these leads must not make an overlong character.
            second = {0xE0: 0xA0, 0xF0: 0x90}.get(lead, 0x80) if back == 1 else 0x80
            return bytes([second]) + b"\x80" * (missing - 1)
    return b""


_BLANK = b" \t\r\n"
_NUMBER = b"-+.eE0123456789"
_QUOTE, _COLON, _COMMA = b'":,'
_OPEN_ARRAY, _CLOSE_ARRAY = b"[]"
_OPEN_OBJECT, _CLOSE_OBJECT = b"{}"
_U = b"u"[0]
_F = b"f"[0]
