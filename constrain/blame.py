"""Which part of a schema an engine's refusal is about: engines know no places."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

from .pointer import target
from .schema import children

MAX_ASKED = 200
"""Subschemas that are compiled alone to find the one that is refused."""

_HOLDERS = ("$defs", "definitions")
_BEFORE = {
    "prefixItems": ("items",),
    "items": ("additionalItems",),
    "dependentRequired": ("dependencies",),
    "dependentSchemas": ("dependencies",),
}
"""How earlier drafts spell the keywords of a normal form."""


def blamed(
    schema: Any, exact: Any, reason: str, refusal: Callable[[Any], str | None]
) -> tuple[str, str, str]:
    """The pointer of the smallest subschema that is refused alone, the keyword that the engine's
    message names there or without which the subschema is taken, and that message.

    ``exact`` is the normal form of ``schema``; ``refusal`` tries a schema and gives the engine's
    message, if it has one.
    """
    pointer, place, asked = "", exact, 0
    kept = {key: exact[key] for key in _HOLDERS if isinstance(exact, dict) and key in exact}
    while True:
        pointer, place = _followed(pointer, place, exact)
        for step, child in children(place):
            if asked >= MAX_ASKED or step.split("/")[0] in _HOLDERS:
                continue
            asked += 1
            found = refusal({**kept, "allOf": [child]})
            if found is not None and isinstance(child, dict):
                pointer, place, reason = f"{pointer}/{step}", child, found
                break
        else:
            break
    words = re.findall(r"[A-Za-z$]+", reason)
    keyword = next((word for word in words if word in place), "")
    if not keyword and isinstance(place, dict):
        # Without its type most of what a subschema says is idle: the type is blamed last.
        named = sorted(place, key=lambda each: each == "type")
        without = ((each, {k: v for k, v in place.items() if k != each}) for each in named)
        tries = itertools.islice(without, MAX_ASKED - asked)
        keyword = next((name for name, rest in tries if refusal({**kept, **rest}) is None), "")
    written = _as_written(pointer, schema)
    return written, _spelled(keyword, target("#" + written, schema)), reason


def _followed(pointer: str, place: Any, exact: Any) -> tuple[str, Any]:
    """What a subschema that is only a reference refers to."""
    seen = set[str]()
    while isinstance(place, dict) and set(place) - set(_HOLDERS) == {"$ref"}:
        ref = place["$ref"]
        inner = target(ref, exact)
        if ref in seen or not isinstance(inner, dict):
            break
        seen.add(ref)
        pointer, place = ref[1:], inner
    return pointer, place


def _as_written(pointer: str, schema: Any) -> str:
    """A pointer into the normal form as one into the user's own schema."""
    written, place = "", schema
    for step in pointer.split("/")[1:]:
        for name in (step, *_BEFORE.get(step, ())):
            inner = target(f"#/{name}", place)
            if inner is not None:
                written, place = f"{written}/{name}", inner
                break
        else:
            return written
    return written


def _spelled(keyword: str, place: Any) -> str:
    """A keyword as the user wrote it."""
    if not isinstance(place, dict) or keyword in place:
        return keyword
    return next((name for name in _BEFORE.get(keyword, ()) if name in place), keyword)
