"""JSON inside a request that is passed on as text: a schema."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from ..errors import RequestError

ABSENT = msgspec.Raw(b"null")
"""What a raw field is where it was not given. Raw fields hold JSON text as it was written: keys in
their order, numbers as they are spelt. ``null`` is "not given", as it is everywhere."""

MAX_BYTES = 1_000_000
"""Longest JSON text that is passed on."""

MAX_NESTING = 256
"""Deepest nesting of objects and lists in it; schemas have far less."""


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a raw field was given: ``null`` is not."""
    return bytes(raw) != b"null"


def object_text(raw: msgspec.Raw, path: str) -> str:
    """The text of JSON that was given as itself, or as a string that holds it. See ``checked``."""
    data = bytes(raw)
    if data.startswith(b'"'):
        data = str(_plain(data, path)).encode()
    return checked(data, path)


def schema_text(raw: msgspec.Raw, path: str, *, quoted: bool = False) -> str:
    """A schema's text. ``quoted``: it may come as a string that holds it. See ``checked``."""
    text = object_text(raw, path) if quoted else checked(bytes(raw), path)
    if text.startswith("{") or text in ("true", "false"):
        return text
    kind = {'"': "a string", "[": "a list"}.get(text[0], text[:32])
    raise RequestError(f"{path} is {kind}; a JSON schema is an object", param=path)


def checked(data: bytes, path: str) -> str:
    """JSON as text without blanks between its parts. ``RequestError`` for what is no JSON, is too
    large or too deep, or names one key twice (one of both would be ignored)."""
    if len(data) > MAX_BYTES:
        raise RequestError(f"{path} has {len(data)} bytes; the most is {MAX_BYTES}", param=path)
    _plain(data, path)
    try:
        value = json.loads(data, object_pairs_hook=_without_twins)
    except ValueError as error:  # a key that comes twice, or a number of thousands of digits
        raise RequestError(f"{path}: {error}", param=path) from error
    except RecursionError:
        raise _too_deep(path) from None
    if _nesting(value) > MAX_NESTING:
        raise _too_deep(path)
    return msgspec.json.format(data, indent=-1).decode()


def _plain(data: bytes, path: str) -> Any:
    """The value, by a reader that takes no lone surrogates, infinities or broken UTF-8."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise _too_deep(path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} is not JSON: {error}", param=path) from error


def _too_deep(path: str) -> RequestError:
    return RequestError(f"{path} is nested deeper than {MAX_NESTING} levels", param=path)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twin, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twin[:64]!r} comes twice in one object")
    return found


def _nesting(value: Any) -> int:
    """Levels of objects and lists in a value, level by level."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [
            child for each in level for child in (each.values() if isinstance(each, dict) else each)
        ]
    return depth
