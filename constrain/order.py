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
    flat = [each for schema in schemas for each in _flattened(schema, root, 0)]
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


def _flattened(schema: Any, root: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """A schema and all that speaks of the same value."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH // 4:
        return
    yield schema
    ref = schema.get("$ref")
    if isinstance(ref, str):
        yield from _flattened(target(ref, root), root, depth + 1)
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            for each in schema[keyword]:
                yield from _flattened(each, root, depth + 1)
    for keyword in ("if", "then", "else"):
        yield from _flattened(schema.get(keyword), root, depth + 1)
    for keyword in ("dependentSchemas", "dependencies"):
        for each in _map(schema, keyword).values():
            yield from _flattened(each, root, depth + 1)


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
