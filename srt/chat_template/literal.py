"""Keeping clients' text from writing a template's control tokens."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..errors import RequestError
from ..tool_calls import Arguments

_PRIVATE = range(0xE000, 0xF900)
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class Markers:
    """The control tokens of a tokenizer, and how text that has them is defused.

    A marker in a client's text (in whatever case, since templates may change it) is broken by one
    private-use character, which occurs nowhere in the request, after its first character. Text
    that ends with a marker's beginning, or begins with its end, is broken there too, so that no
    two pieces can make one together. The character survives whatever a template does to text
    (trimming, cutting, changing case, printing as JSON), unlike brackets around it; the tokenizer
    takes it out again after it has looked for markers. (A template that deletes characters inside
    of text could undo it; none is known.) Text without markers is not touched, and templates see
    it as it is.
    """

    def __init__(self, markers: Iterable[str]) -> None:
        folded = sorted({marker.lower() for marker in markers}, key=len, reverse=True)
        self._whole = re.compile("|".join(map(re.escape, folded)) or r"(?!)", re.IGNORECASE)
        cuts = [(m[:i], m[i:]) for m in folded for i in range(1, len(m))]
        self._heads = frozenset(head for head, _ in cuts)
        self._tails = frozenset(tail for _, tail in cuts)
        self._longest = max((len(marker) - 1 for marker in folded), default=0)

    def defused(self, text: str, char: str) -> str:
        """The text with ``char`` inside every marker, and at its ends where they could be part of
        one."""
        text = self._whole.sub(lambda match: match[0][0] + char + match[0][1:], text)
        core = text.strip()
        if not core:
            return text
        before = len(text) - len(text.lstrip())
        after = before + len(core)
        low = core.lower()
        sizes = range(1, min(self._longest, len(low)) + 1)
        head = char if any(low[:n] in self._tails for n in sizes) else ""
        tail = char if any(low[-n:] in self._heads for n in sizes) else ""
        return text[:before] + head + core + tail + text[after:]


def rewritten(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of JSON-like data with every string changed, keys included; well-known roles stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        changed = {
            change(key) if isinstance(key, str) else key: (
                part if key == "role" and part in _ROLES else rewritten(part, change)
            )
            for key, part in value.items()
        }
        return Arguments(changed, change(value.text)) if isinstance(value, Arguments) else changed
    if isinstance(value, (list, tuple)):
        return [rewritten(part, change) for part in value]
    return value


def strings(value: Any) -> Iterator[str]:
    """Every string in JSON-like data, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if isinstance(value, Arguments):
            yield value.text
        for key, part in value.items():
            yield from strings(key)
            yield from strings(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from strings(part)


def unused_chars(count: int, texts: Iterable[str]) -> list[str]:
    """Random private-use characters that occur in none of the texts, written out or escaped.

    ``RequestError`` where the texts use (nearly) all of the 6400.
    """
    used = set(re.findall("[\ue000-\uf8ff]|\\\\u[0-9a-fA-F]{4}", "\n".join(texts)))
    taken = {piece if len(piece) == 1 else chr(int(piece[2:], 16)) for piece in used}
    free = [chr(code) for code in _PRIVATE if chr(code) not in taken]
    if len(free) < count:
        raise RequestError("the messages use up the private-use characters", param="messages")
    return [free.pop(secrets.randbelow(len(free))) for _ in range(count)]
