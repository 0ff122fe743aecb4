"""The complement of a schema, as a schema, for the keywords where there is one."""

from __future__ import annotations

import itertools
from typing import Any

from . import keywords
from .pointer import target
from .schema import copied

Schema = dict[str, Any]

_ANNOTATIONS = frozenset(
    [
        "$comment",
        "$id",
        "$schema",
        "default",
        "deprecated",
        "description",
        "examples",
        "id",
        "readOnly",
        "title",
        "writeOnly",
    ]
)
_MAX_REFS = 8


class InexpressibleError(Exception):
    """A schema whose complement these keywords cannot say."""


def negated(schema: Any, root: Any, refs: int = 0, names: frozenset[str] | None = None) -> Any:
    """A schema that takes exactly the values that ``schema`` does not.

    ``root`` is where local references lead. Where ``names`` are given, the answer needs to be
    right only for objects that have no others. Raises ``InexpressibleError``.
    """
    if isinstance(schema, bool):
        return not schema
    said = schema.keys() - _ANNOTATIONS
    if not said:
        return False
    if "$ref" in said and len(said) > 1:  # up to draft-07 what stands beside does not count
        raise InexpressibleError
    choices = [
        _negated_keyword(keyword, value, schema, root, refs, names)
        for keyword, value in schema.items()
        if keyword not in _ANNOTATIONS and keyword not in ("definitions", "$defs")
    ]
    choices = [each for each in choices if each is not False]
    if not choices:
        return False
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def _negated_keyword(
    keyword: str,
    value: Any,
    schema: Schema,
    root: Any,
    refs: int,
    names: frozenset[str] | None,
) -> Any:
    """What violates one keyword."""
    if keyword == "additionalProperties":
        return _other_names(value, schema, names)
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
        return conjunct([negated(each, root, refs, names) for each in value])
    if keyword == "allOf":
        return _any([negated(each, root, refs, names) for each in value])
    if keyword == "not":
        return copied(value)
    if keyword == "$ref":
        return negated(_target(value, root, refs), root, refs + 1, names)
    if keyword in ("enum", "const"):
        return _other_values(value if keyword == "enum" else [value])
    return _past_bound(keyword, value, schema)


def _other_types(value: Any) -> Any:
    named = set(value if isinstance(value, list) else [value])
    if "integer" in named and "number" not in named:
        raise InexpressibleError
    if "number" in named:
        named.add("integer")
    left = keywords.TYPES - named - {"integer"}
    return {"type": sorted(left)} if left else False


def _other_names(value: Any, schema: Schema, names: frozenset[str] | None) -> Any:
    """A key that ``additionalProperties: false`` forbids, out of those that there can be."""
    if value is True or value == {}:
        return False
    if value is not False or names is None or schema.get("patternProperties"):
        raise InexpressibleError
    extra = sorted(names - schema.get("properties", {}).keys())
    return _any([_object(required=[name]) for name in extra])


def _other_values(values: list[Any]) -> Any:
    """Every value but these, which must be scalars."""
    if any(isinstance(value, list | dict) for value in values):
        raise InexpressibleError
    literals = [each for each in (None, False, True) if not any(each is v for v in values)]
    texts = [each for each in values if isinstance(each, str)]
    numbers = sorted(
        {each for each in values if isinstance(each, int | float) and not isinstance(each, bool)}
    )
    choices: list[Any] = [{"type": ["array", "object"]}]
    if literals:
        choices.append({"enum": literals})
    choices.append({"type": "string", **({"pattern": f"^{_but(texts)}$"} if texts else {})})
    return {"anyOf": [*choices, *_but_numbers(numbers)]}


def _but(texts: list[str]) -> str:
    """A regular expression for all texts but these: their prefix tree, complemented."""
    tails: dict[str, list[str]] = {}
    for text in texts:
        if text:
            tails.setdefault(text[0], []).append(text[1:])
    if not tails:
        return "(?s:.)+" if texts else "(?s:.)*"
    listed = "".join(_escaped(char) for char in sorted(tails))
    parts = [f"[^{listed}](?s:.)*"]
    parts += [_escaped(char) + _but(rest) for char, rest in sorted(tails.items())]
    return f"({'|'.join(parts)}){'' if '' in texts else '?'}"


def _escaped(char: str) -> str:
    return char if char.isalnum() else f"\\x{{{ord(char):x}}}"


def _but_numbers(numbers: list[Any]) -> list[Any]:
    """The open intervals between numbers."""
    if not numbers:
        return [{"type": "number"}]
    between = [
        {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high}
        for low, high in itertools.pairwise(numbers)
    ]
    return [
        {"type": "number", "exclusiveMaximum": numbers[0]},
        *between,
        {"type": "number", "exclusiveMinimum": numbers[-1]},
    ]


def _past_bound(keyword: str, value: Any, schema: Schema) -> Any:
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
    opposite = {
        "minimum": "exclusiveMaximum",
        "maximum": "exclusiveMinimum",
    }
    # Draft-04's boolean beside the bound says whether the bound itself is in: not both ways.
    if keyword in opposite and f"exclusive{keyword.capitalize()}" not in schema:
        return {"type": "number", opposite[keyword]: value}
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and not isinstance(value, bool):
        return {"type": "number", ("maximum" if "Min" in keyword else "minimum"): value}
    raise InexpressibleError


def _target(ref: str, root: Any, refs: int) -> Any:
    """The schema that a local pointer names."""
    found = target(ref, root)
    if refs >= _MAX_REFS or not isinstance(found, dict | bool):
        raise InexpressibleError
    return found


def _object(**said: Any) -> Schema:
    return {"type": "object", **said}


def _any(choices: list[Any]) -> Any:
    choices = [each for each in choices if each is not False]
    if not choices:
        return False
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def conjunct(parts: list[Any]) -> Any:
    """What all of these take."""
    if False in parts:
        return False
    parts = [each for each in parts if each is not True]
    if not parts:
        return True
    return parts[0] if len(parts) == 1 else {"allOf": parts}
