"""Local references of JSON schemas."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


def target(ref: str, root: Any) -> Any:
    """What a local JSON pointer (``#``, ``#/a/b``) names; ``None`` where it names nothing."""
    if ref != "#" and not ref.startswith("#/"):
        return None
    place = root
    for name in steps(unquote(ref[1:]) if "%" in ref else ref[1:]):
        if isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        elif isinstance(place, dict) and name in place:
            place = place[name]
        else:
            return None
    return place


def steps(pointer: str) -> list[str]:
    """The names that a JSON pointer (empty, or ``/a/b``) goes through."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
