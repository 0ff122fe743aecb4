"""The order in which a schema declares keys: the order in which they are generated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .pointer import target

_MAX_DEPTH = 40


def in_schema_order(value: Any, schema: Any) -> Any:
    """The value with the keys of its objects in the order in which the schema declares them.

    Keys that no schema declares keep their order, after those that one does.
    """
    return _ordered(value, [schema], schema, 0)


def _ordered(value: Any, schemas: list[Any], root: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH or not isinstance(value, dict | list):
        return value
    flat = [each for schema in schemas for each in _flattened(schema, value, root, 0)]
    if isinstance(value, list):
        return [
            _ordered(item, [s for each in flat for s in _item(each, i)], root, depth + 1)
            for i, item in enumerate(value)
        ]
    declared = [key for each in flat for key in _map(each, "properties")]
    declared += [
        key
        for each in flat
        for key in (each["required"] if isinstance(each.get("required"), list) else ())
    ]
    keys = [key for key in dict.fromkeys(declared) if key in value]
    keys += [key for key in value if key not in set(keys)]
    return {
        key: _ordered(
            value[key], [s for each in flat for s in _property(each, key)], root, depth + 1
        )
        for key in keys
    }


def _flattened(schema: Any, value: Any, root: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """A schema and all that speaks of the same value; of choices, those that it may be."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH // 4:
        return
    # A schema's own properties come first, then those of what it combines, as it does.
    yield schema
    for keyword, said in schema.items():
        if keyword == "$ref" and isinstance(said, str):
            yield from _flattened(target(said, root), value, root, depth + 1)
        elif keyword in ("allOf", "anyOf", "oneOf") and isinstance(said, list):
            parts = said
            if keyword != "allOf":
                parts = [each for each in said if _plausible(each, value, root, 0)] or said
            for each in parts:
                yield from _flattened(each, value, root, depth + 1)
    # What is rewritten comes after the rest.
    for keyword in ("dependencies", "dependentSchemas"):
        for each in _map(schema, keyword).values():
            yield from _flattened(each, value, root, depth + 1)
    for keyword in ("if", "then", "else"):
        yield from _flattened(schema.get(keyword), value, root, depth + 1)


def _plausible(schema: Any, value: Any, root: Any, depth: int) -> bool:
    """Whether a value may be meant by a choice: its type, its required keys, its constants."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH // 4:
        return schema is not False
    ref = schema.get("$ref")
    if isinstance(ref, str) and not _plausible(target(ref, root), value, root, depth + 1):
        return False
    if not _has_type(value, schema.get("type")):
        return False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if isinstance(value, list):
        item = schema.get("items")
        return not isinstance(item, dict) or all(
            _plausible(item, each, root, depth + 1) for each in value
        )
    if not isinstance(value, dict):
        return True
    known = _map(schema, "properties")
    closed = schema.get("additionalProperties") is False
    if closed and not _map(schema, "patternProperties") and value.keys() - known.keys():
        return False
    required = schema.get("required")
    if isinstance(required, list) and any(key not in value for key in required):
        return False
    return all(
        _plausible(known[key], each, root, depth + 1) for key, each in value.items() if key in known
    )


def _has_type(value: Any, named: Any) -> bool:
    names = named if isinstance(named, list) else [named]
    kinds: Mapping[str, Any] = {
        "array": list,
        "boolean": bool,
        "integer": int,
        "null": type(None),
        "number": (int, float),
        "object": dict,
        "string": str,
    }
    return any(
        not isinstance(name, str) or isinstance(value, kinds.get(name, object)) for name in names
    )


def _map(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _item(schema: Mapping[str, Any], index: int) -> Iterator[Any]:
    items = schema.get("items")
    prefix = schema.get("prefixItems", items if isinstance(items, list) else [])
    if isinstance(prefix, list) and index < len(prefix):
        yield prefix[index]
    elif isinstance(items, dict):
        yield items
    else:
        yield schema.get("additionalItems")


def _property(schema: Mapping[str, Any], key: str) -> Iterator[Any]:
    properties = _map(schema, "properties")
    if key in properties:
        yield properties[key]
        return
    yield from _map(schema, "patternProperties").values()
    yield schema.get("additionalProperties")
