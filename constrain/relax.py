"""Schemas made to take more, where the engine cannot take exactly what is right.

Each level leaves out more: first what only says how values relate to each other, then patterns of
names that overlap, then whatever stands in the way of intersecting schemas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from .keywords import MAPS

_RELATIONS = frozenset(
    (
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "maxProperties",
        "minContains",
        "minProperties",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    )
)


def without_relations(schema: Any) -> None:
    """Drops what speaks of how values, or parts of one, relate; ``oneOf`` becomes ``anyOf``."""
    for each in subschemas(schema):
        for keyword in _RELATIONS & each.keys():
            del each[keyword]
        if "oneOf" in each:
            union = {"anyOf": each.pop("oneOf")}
            if "anyOf" in each:
                each["allOf"] = [*each.get("allOf", ()), union]
            else:
                each |= union


def without_name_patterns(schema: Any) -> None:
    """Lets names that a pattern speaks of, and are not declared, have any value."""
    for each in subschemas(schema):
        if each.pop("patternProperties", None):
            each.pop("additionalProperties", None)


def without_intersections(schema: Any) -> None:
    """Keeps of what is combined only the keywords of the schemas themselves."""
    for each in subschemas(schema):
        for keyword in ("allOf", "anyOf"):
            if len(each) > 1:
                each.pop(keyword, None)


def without_expressions(schema: Any) -> None:
    """Drops patterns that the engine cannot take, or not together with the rest."""
    for each in subschemas(schema):
        expression = each.get("pattern")
        if isinstance(expression, str) and ("format" in each or _LOOKS_AROUND.search(expression)):
            del each["pattern"]
        names = each.get("patternProperties")
        if isinstance(names, dict) and any(_LOOKS_AROUND.search(name) for name in names):
            del each["patternProperties"]
            each.pop("additionalProperties", None)


_LOOKS_AROUND = re.compile(r"\(\?<?[=!]|\\[bB1-9]|\[\^?\]|\\c[A-Za-z]|\\k<")


LEVELS: tuple[Callable[[Any], None], ...] = (
    without_expressions,
    without_relations,
    without_name_patterns,
    without_intersections,
)


def loose_always(schema: Any) -> bool:
    """Drops what the engine takes too strictly; whether there was any.

    Its rule for multiples of a fraction, or of any number where fractions are allowed, does not
    take ``75.0``.
    """
    found = False
    for each in subschemas(schema):
        of = each.get("multipleOf")
        if of is None:
            continue
        whole = each.get("type") == "integer"
        if not whole or Fraction(repr(of) if isinstance(of, float) else of).denominator != 1:
            del each["multipleOf"]
            found = True
    return found


def keys_first(schema: Any) -> Any:
    """The schema with each ``properties`` before what is combined: the engine writes keys in the
    order of the keywords that name them."""
    if isinstance(schema, list):
        return [keys_first(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key in sorted(schema, key=lambda key: key != "properties"):
        value = schema[key]
        if key in MAPS and isinstance(value, dict):
            found[key] = {name: keys_first(each) for name, each in value.items()}
        else:
            found[key] = value if key in _VALUES else keys_first(value)
    return found


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """All objects of a schema that may be schemas: also those that only a reference leads to."""
    todo = [schema]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            yield each
            for key, value in each.items():
                if key in MAPS and isinstance(value, dict):
                    todo += value.values()
                elif key not in _VALUES:
                    todo.append(value)
        elif isinstance(each, list):
            todo += each


_VALUES = frozenset(("const", "enum", "default", "examples", "required", "type", "example"))
