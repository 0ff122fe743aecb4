"""Which keys and items of a value the keywords of a schema have looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .ecma import found
from .pointer import target

Satisfies = Callable[[Any, Any, Any], bool]
"""Whether a value satisfies a schema; the last is the root of references."""


def evaluated_keys(
    value: dict[str, Any], schema: Any, root: Any, satisfies: Satisfies, *, own: bool = True
) -> set[str]:
    """Keys that a schema, which the object satisfies, has evaluated.

    Without ``own``, ``unevaluatedProperties`` of the schema itself does not count.
    """
    if not isinstance(schema, dict):
        return set()
    if "additionalProperties" in schema or (own and "unevaluatedProperties" in schema):
        return set(value)
    known = {key for key in schema.get("properties", ()) if key in value}
    for expression in schema.get("patternProperties", ()):
        known |= {key for key in value if found(expression, key)}
    for each in _applied(value, schema, root, satisfies):
        known |= evaluated_keys(value, each, root, satisfies)
    return known


def evaluated_items(
    value: list[Any], schema: Any, root: Any, satisfies: Satisfies, *, own: bool = True
) -> set[int]:
    """Indices of items that a schema, which the array satisfies, has evaluated."""
    if not isinstance(schema, dict):
        return set()
    if "items" in schema or (own and "unevaluatedItems" in schema):
        return set(range(len(value)))
    known = set(range(min(len(value), len(schema.get("prefixItems", ())))))
    if "contains" in schema:
        wanted = schema["contains"]
        known |= {at for at, item in enumerate(value) if satisfies(item, wanted, root)}
    for each in _applied(value, schema, root, satisfies):
        known |= evaluated_items(value, each, root, satisfies)
    return known


def _applied(value: Any, schema: dict[str, Any], root: Any, satisfies: Satisfies) -> Iterator[Any]:
    """Schemas that speak of the same value, and that it satisfies."""
    if "$ref" in schema:
        yield target(schema["$ref"], root)
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from (each for each in schema.get(keyword, ()) if satisfies(value, each, root))
    if "if" in schema:
        holds = satisfies(value, schema["if"], root)
        if holds:
            yield schema["if"]
        yield schema.get("then" if holds else "else", True)
    if isinstance(value, dict):
        for key, each in schema.get("dependentSchemas", {}).items():
            if key in value:
                yield each
