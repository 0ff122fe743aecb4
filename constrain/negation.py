"""The complement of a schema, as a schema, for the keywords where there is one."""

from __future__ import annotations

import copy
from typing import Any

from . import keywords
from .pointer import target

Schema = dict[str, Any]

_ANNOTATIONS = frozenset(
    "$comment $id $schema default deprecated description examples id readOnly title"
    " writeOnly".split()
)
_MAX_REFS = 8


class NotExpressible(Exception):
    """A schema whose complement these keywords cannot say."""


def negated(schema: Any, root: Any, refs: int = 0) -> Any:
    """A schema that takes exactly the values that ``schema`` does not.

    ``root`` is where local references lead. Raises ``NotExpressible``.
    """
    if isinstance(schema, bool):
        return not schema
    if not schema.keys() - _ANNOTATIONS:
        return False
    choices = [
        _negated_keyword(keyword, value, schema, root, refs)
        for keyword, value in schema.items()
        if keyword not in _ANNOTATIONS and keyword not in ("definitions", "$defs")
    ]
    choices = [each for each in choices if each is not False]
    if not choices:
        return False
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def _negated_keyword(keyword: str, value: Any, schema: Schema, root: Any, refs: int) -> Any:
    """What violates one keyword."""
    if keyword == "type":
        return _other_types(value)
    if keyword == "required":
        return _any([_object(properties={name: False}) for name in value])
    if keyword == "properties":
        parts = [(name, negated(each, root, refs)) for name, each in value.items()]
        return _any(
            [
                _object(properties={name: part}, required=[name])
                for name, part in parts
                if part is not False
            ]
        )
    if keyword == "anyOf":
        return {"allOf": [negated(each, root, refs) for each in value]}
    if keyword == "allOf":
        return _any([negated(each, root, refs) for each in value])
    if keyword == "not":
        return copy.deepcopy(value)
    if keyword == "$ref":
        return negated(_target(value, root, refs), root, refs + 1)
    if keyword in ("enum", "const"):
        return _other_values(value if keyword == "enum" else [value])
    return _past_bound(keyword, value)


def _other_types(value: Any) -> Any:
    named = set(value if isinstance(value, list) else [value])
    if "integer" in named and "number" not in named:
        raise NotExpressible
    if "number" in named:
        named.add("integer")
    left = keywords.TYPES - named - {"integer"}
    return {"type": sorted(left)} if left else False


def _other_values(values: list[Any]) -> Any:
    """Every value but these; only for null and booleans, which are few."""
    if not all(value is None or isinstance(value, bool) for value in values):
        raise NotExpressible
    choices: list[Any] = [{"type": ["array", "number", "object", "string"]}]
    rest = [each for each in (None, False, True) if not any(each is value for value in values)]
    if rest:
        choices.append({"enum": rest})
    return {"anyOf": choices}


def _past_bound(keyword: str, value: Any) -> Any:
    """What lies on the other side of a bound."""
    counted = {
        "minItems": ("array", "maxItems", -1),
        "maxItems": ("array", "minItems", 1),
        "minLength": ("string", "maxLength", -1),
        "maxLength": ("string", "minLength", 1),
    }
    if keyword in counted:
        kind, other, by = counted[keyword]
        return {"type": kind, other: int(value) + by} if value + by >= 0 else False
    raise NotExpressible


def _target(ref: str, root: Any, refs: int) -> Any:
    """The schema that a local pointer names."""
    found = target(ref, root)
    if refs >= _MAX_REFS or not isinstance(found, dict | bool):
        raise NotExpressible
    return found


def _object(**said: Any) -> Schema:
    return {"type": "object", **said}


def _any(choices: list[Any]) -> Any:
    choices = [each for each in choices if each is not False]
    if not choices:
        return False
    return choices[0] if len(choices) == 1 else {"anyOf": choices}
