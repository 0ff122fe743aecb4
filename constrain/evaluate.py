"""Whether a value satisfies a schema: exactly, keyword by keyword.

Schemas are in normal form (see ``plan``). Numbers are compared as numbers: 1 is 1.0, and neither is
``true``. Lengths count code points; patterns are searched for.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from . import formats
from .ecma import found
from .pointer import target
from .unevaluated import evaluated_items, evaluated_keys

__all__ = ["equal", "found", "satisfies"]

Rule = Callable[[Any, Any, dict[str, Any], Any], bool]
"""Of a value, a keyword's own value, the schema that holds it, and the root of references."""


def satisfies(value: Any, schema: Any, root: Any) -> bool:
    """Whether a value is one that a schema takes. ``root`` is where references lead."""
    if not isinstance(schema, dict):
        return schema is not False
    for keyword, wanted in schema.items():
        rule = _RULES.get(keyword)
        if rule is not None and not rule(value, wanted, schema, root):
            return False
    return True


def equal(first: Any, second: Any) -> bool:
    """JSON's equality."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first == second
    if type(first) is not type(second):
        return False
    if isinstance(first, list):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(v, second[k]) for k, v in first.items())
    return bool(first == second)


def _enum(value: Any, wanted: list[Any], schema: Any, root: Any) -> bool:
    if isinstance(value, str):
        return value in wanted
    return any(equal(value, each) for each in wanted)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_type(value: Any, name: str) -> bool:
    if name == "integer":
        return _is_number(value) and (isinstance(value, int) or value.is_integer())
    if name == "number":
        return _is_number(value)
    return type(value) is _TYPES.get(name)


def _type(value: Any, names: Any, schema: dict[str, Any], root: Any) -> bool:
    return any(_is_type(value, name) for name in (names if isinstance(names, list) else [names]))


def _multiple(value: Any, of: Any, schema: dict[str, Any], root: Any) -> bool:
    if not _is_number(value):
        return True
    return (Fraction(repr(value)) / Fraction(repr(of))).denominator == 1


def _pattern(value: Any, expression: Any, schema: dict[str, Any], root: Any) -> bool:
    return not isinstance(value, str) or found(expression, value)


def _properties(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(satisfies(value[key], each, root) for key, each in wanted.items() if key in value)


def _pattern_properties(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(
        satisfies(item, each, root)
        for expression, each in wanted.items()
        for key, item in value.items()
        if found(expression, key)
    )


def _additional(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    known, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
    return all(
        satisfies(item, wanted, root)
        for key, item in value.items()
        if key not in known and not any(found(each, key) for each in patterns)
    )


def _dependent_required(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(name in value for key, names in wanted.items() if key in value for name in names)


def _dependent_schemas(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(satisfies(value, each, root) for key, each in wanted.items() if key in value)


def _items(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, list):
        return True
    return all(
        satisfies(item, wanted, root) for item in value[len(schema.get("prefixItems", ())) :]
    )


def _prefix_items(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, list):
        return True
    return all(satisfies(item, each, root) for item, each in zip(value, wanted, strict=False))


def _contains(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, list):
        return True
    count = sum(satisfies(item, wanted, root) for item in value)
    return bool(schema.get("minContains", 1) <= count <= schema.get("maxContains", count))


def _unique(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not wanted or not isinstance(value, list):
        return True
    return not any(equal(a, b) for at, a in enumerate(value) for b in value[:at])


def _unevaluated_keys(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    known = evaluated_keys(value, schema, root, satisfies, own=False)
    return all(satisfies(item, wanted, root) for key, item in value.items() if key not in known)


def _unevaluated_items(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
    if not isinstance(value, list):
        return True
    known = evaluated_items(value, schema, root, satisfies, own=False)
    return all(satisfies(item, wanted, root) for at, item in enumerate(value) if at not in known)


def _conditional(value: Any, condition: Any, schema: dict[str, Any], root: Any) -> bool:
    branch = "then" if satisfies(value, condition, root) else "else"
    return satisfies(value, schema.get(branch, True), root)


def _bound(kind: type | tuple[type, ...], holds: Callable[[Any, Any], bool]) -> Rule:
    """A rule that speaks only of values of some types."""

    def rule(value: Any, wanted: Any, schema: dict[str, Any], root: Any) -> bool:
        return not isinstance(value, kind) or isinstance(value, bool) or holds(value, wanted)

    return rule


_TYPES = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}
_NUMBER = (int, float)
_RULES: dict[str, Rule] = {
    "type": _type,
    "const": lambda value, wanted, schema, root: equal(value, wanted),
    "enum": _enum,
    "$ref": lambda value, ref, schema, root: satisfies(value, target(ref, root), root),
    "minimum": _bound(_NUMBER, lambda value, bound: value >= bound),
    "maximum": _bound(_NUMBER, lambda value, bound: value <= bound),
    "exclusiveMinimum": _bound(_NUMBER, lambda value, bound: value > bound),
    "exclusiveMaximum": _bound(_NUMBER, lambda value, bound: value < bound),
    "multipleOf": _multiple,
    "minLength": _bound(str, lambda value, bound: len(value) >= bound),
    "maxLength": _bound(str, lambda value, bound: len(value) <= bound),
    "pattern": _pattern,
    "format": _bound(str, lambda value, name: formats.holds(name, value)),
    "minProperties": _bound(dict, lambda value, bound: len(value) >= bound),
    "maxProperties": _bound(dict, lambda value, bound: len(value) <= bound),
    "minItems": _bound(list, lambda value, bound: len(value) >= bound),
    "maxItems": _bound(list, lambda value, bound: len(value) <= bound),
    "required": _bound(dict, lambda value, names: all(name in value for name in names)),
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "propertyNames": lambda value, wanted, schema, root: (
        not isinstance(value, dict) or all(satisfies(key, wanted, root) for key in value)
    ),
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "items": _items,
    "prefixItems": _prefix_items,
    "contains": _contains,
    "uniqueItems": _unique,
    "allOf": lambda value, each, schema, root: all(satisfies(value, s, root) for s in each),
    "anyOf": lambda value, each, schema, root: any(satisfies(value, s, root) for s in each),
    "oneOf": lambda value, each, schema, root: sum(satisfies(value, s, root) for s in each) == 1,
    "not": lambda value, wanted, schema, root: not satisfies(value, wanted, root),
    "if": _conditional,
    "unevaluatedProperties": _unevaluated_keys,
    "unevaluatedItems": _unevaluated_items,
}
