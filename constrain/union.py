"""Unions of many similar objects, taken together.

A parser that follows every alternative of a union of hundreds of objects with optional keys holds
tens of thousands of items at once. Their keys are merged into one object that takes more; which
alternatives hold is then judged on values.
"""

from __future__ import annotations

import json
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .pointer import target
from .relax import subschemas

MAX_ITEMS = 1500
"""Keys of a union's alternatives, all together, up to which it is left to the parser."""

_KNOWN = frozenset(
    ("type", "properties", "required", "additionalProperties", "title", "description", "$comment")
)


def merged(root: Any) -> Any | None:
    """The schema with its large unions merged; ``None`` if it has none. Changes nothing."""
    if len(json.dumps(root)) < MAX_ITEMS:
        return None
    copy = json.loads(json.dumps(root))
    found = False
    for schema in list(subschemas(copy)):
        for name in ("anyOf", "oneOf"):
            if len(schema.get(name, ())) < 2:
                continue
            together = _merged(schema[name], copy)
            if together is not None:
                del schema[name]
                schema["allOf"] = [*schema.get("allOf", ()), together]
                found = True
    return copy if found else None


def _merged(choices: list[Any], root: Any) -> dict[str, Any] | None:
    objects = []
    for choice in choices:
        for _ in range(8):
            if not (isinstance(choice, dict) and isinstance(choice.get("$ref"), str)):
                break
            if len(choice) > 1:
                return None
            choice = target(choice["$ref"], root)
        if not isinstance(choice, dict) or choice.get("type") != "object":
            return None
        if choice.keys() - _KNOWN:
            return None
        objects.append(choice)
    size = sum(len(each.get("properties", ())) for each in objects)
    if size <= MAX_ITEMS or _told_apart_early(objects):
        return None
    order = _order([list(each.get("properties", ())) for each in objects])
    if order is None:
        return None
    required = set(objects[0].get("required", ()))
    for each in objects:
        required &= set(each.get("required", ()))
    closed = all(each.get("additionalProperties") is False for each in objects)
    return {
        "type": "object",
        "properties": {key: _either([_of(each, key) for each in objects]) for key in order},
        "required": sorted(required),
        **({"additionalProperties": False} if closed else {}),
    }


def _told_apart_early(objects: list[dict[str, Any]]) -> bool:
    """Whether the first key is required and its constant tells all alternatives apart: a parser
    that has read it follows one."""
    values = set()
    for each in objects:
        key = next(iter(each.get("properties", ())), None)
        first = each.get("properties", {}).get(key)
        if key not in each.get("required", ()) or not isinstance(first, dict):
            return False
        constants = [first["const"]] if "const" in first else first.get("enum", ())
        if len(constants) != 1:
            return False
        values.add(json.dumps([key, constants[0]]))
    return len(values) == len(objects)


def _of(choice: dict[str, Any], key: str) -> Any:
    """What an alternative says of a key's value."""
    properties = choice.get("properties", {})
    return properties[key] if key in properties else choice.get("additionalProperties", True)


def _either(schemas: list[Any]) -> Any:
    distinct = {json.dumps(each): each for each in schemas if each is not False}
    if any(each is True or each == {} for each in distinct.values()):
        return True
    values = list(distinct.values())
    return values[0] if len(values) == 1 else {"anyOf": values}


def _order(lists: list[list[str]]) -> list[str] | None:
    """An order of all keys in which those of each alternative keep theirs."""
    graph: dict[str, set[str]] = {}
    for keys in lists:
        for before, key in zip([None, *keys], keys, strict=False):
            graph.setdefault(key, set())
            if before is not None:
                graph[key].add(before)
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError:
        return None
