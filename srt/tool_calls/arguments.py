"""Arguments of calls that come back in a conversation.

What a template prints must be what the model wrote, or the prefix cache would not find the turn
again: JSON with ``", "`` and ``": "`` between its parts, every name, text and number as it was
spelt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_SPACED = {",": ", ", ":": ": "}


class Arguments(dict[str, Any]):
    """Arguments as templates use them; ``text`` is how they were spelt, evenly spaced."""

    __slots__ = ("text",)

    def __init__(self, values: Mapping[str, Any], text: str) -> None:
        super().__init__(values)
        self.text = text


def arguments_of(text: str) -> Arguments | str:
    """Arguments as they come on the wire. No text is no arguments; what is no JSON object stays
    text."""
    if not text.strip():
        return Arguments({}, "{}")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return Arguments(value, respaced(text)) if isinstance(value, dict) else text


def respaced(text: str) -> str:
    """JSON text with the same parts, and ``", "`` and ``": "`` between them."""
    return "".join(_SPACED.get(part, part) for part in _PARTS.findall(text))


def dumped(value: Any) -> str:
    """JSON of a value, characters as they are; arguments in it are spelt as they came."""
    if isinstance(value, Arguments):
        return value.text
    if isinstance(value, Mapping):
        items = (f"{json.dumps(k, ensure_ascii=False)}: {dumped(v)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def holds_arguments(value: Any, depth: int = 4) -> bool:
    """Whether arguments are in a value, no deeper than in a list of calls."""
    if isinstance(value, Arguments):
        return True
    if depth == 0 or not isinstance(value, (Mapping, list, tuple)):
        return False
    parts = value.values() if isinstance(value, Mapping) else value
    return any(holds_arguments(part, depth - 1) for part in parts)
