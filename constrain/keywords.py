"""The keywords of JSON schema: their shapes, and which cannot be enforced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import formats

ONE = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
"""Keywords that hold one subschema."""

LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
"""Keywords that hold a list of subschemas."""

MAPS = frozenset(
    [
        "$defs",
        "definitions",
        "dependencies",
        "dependentSchemas",
        "patternProperties",
        "properties",
    ]
)
"""Keywords that hold subschemas by name."""

TYPES = frozenset(
    [
        "array",
        "boolean",
        "integer",
        "null",
        "number",
        "object",
        "string",
    ]
)

DRAFT_FORMATS = frozenset(
    [
        "color",
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "idn-email",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "iri",
        "iri-reference",
        "json-pointer",
        "phone",
        "regex",
        "relative-json-pointer",
        "style",
        "time",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
    ]
)
"""The formats of drafts 03 to 2020-12; any other name is an annotation.

Not those in ``RENAMED_FORMATS``. Draft-03's ``utc-millisec`` is of numbers, and all have it.
"""

ENGINE_FORMATS = frozenset(
    [
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "time",
        "uri",
        "uuid",
    ]
)
"""Those that llguidance enforces as the drafts mean them; not all of IPv6 is."""

FORMAT_PATTERNS: Mapping[str, str] = {
    name: expression for name, expression in formats.PATTERNS.items() if name not in ENGINE_FORMATS
}
"""Those that are given to the engine as an expression."""

FORMAT_LIMITS: Mapping[str, str] = {
    **{name: formats.PATTERNS[name] for name in ("date", "date-time", "hostname", "time")},
    "email": "^[^@]{1,64}@",
}
"""What llguidance's rules for formats leave out.

It takes 29 February in every year, a second 60 in every minute, and names of mailboxes of any
length. Leap seconds are taken only as UTC writes them.
"""

JUDGED_FORMATS = frozenset(("idn-email", "idn-hostname", "regex"))
"""Those that no regular expression describes whole, and that are judged on values."""

RENAMED_FORMATS: Mapping[str, str] = {"host-name": "hostname", "ip-address": "ipv4"}
"""Draft-03's names of formats that later drafts have too."""

UNENFORCED: Mapping[str, str] = {
    "disallow": "a keyword of draft-03",
    "extends": "a keyword of draft-03",
    "divisibleBy": "a keyword of draft-03",
}

_LATER = frozenset(("if", "then", "else"))
_LATEST = frozenset(
    ("dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties")
)
NOT_YET: Mapping[str, frozenset[str]] = {
    "draft-04": _LATER | _LATEST | {"contains", "propertyNames"},
    "draft-06": _LATER | _LATEST,
    "draft-07": _LATEST,
}
"""Keywords that a draft does not have: in a schema that names the draft they say nothing."""


def draft(schema: Any) -> str:
    """The draft that a schema names: a key of ``NOT_YET``, or empty for none or a later one."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    found = [each for each in NOT_YET if isinstance(named, str) and f"/{each}/" in named]
    return found[0] if found else ""


_COUNTS = frozenset(
    [
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
    ]
)
_NUMBERS = frozenset(("maximum", "minimum", "multipleOf"))
_TEXTS = frozenset(("$dynamicRef", "$recursiveRef", "$ref", "$schema", "format", "pattern"))


def fault(keyword: str, value: Any) -> str:
    """Why ``keyword: value`` is malformed; empty if it is not."""
    if keyword in _COUNTS:
        return "" if _is_count(value) else "must be a whole number that is not negative"
    if keyword in _NUMBERS:
        return _number_fault(keyword, value)
    if keyword in ("exclusiveMinimum", "exclusiveMaximum"):
        return "" if isinstance(value, bool) or _is_number(value) else "must be a number"
    if keyword in _TEXTS:
        return _text_fault(keyword, value)
    if keyword in LISTS:
        return _list_fault(keyword, value)
    if keyword in MAPS:
        return "" if isinstance(value, dict) else "must be an object"
    return _other_fault(keyword, value)


def unenforced(keyword: str, value: Any, schema: Mapping[str, Any]) -> str:
    """Why a well-formed ``keyword: value`` in ``schema`` is not enforced; empty if it is."""
    if keyword in UNENFORCED:
        return UNENFORCED[keyword]
    unheld = DRAFT_FORMATS - ENGINE_FORMATS - FORMAT_PATTERNS.keys() - JUDGED_FORMATS
    if keyword == "format" and value in unheld and may_be("string", schema):
        return f"the format {value!r} is not enforced"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _number_fault(keyword: str, value: Any) -> str:
    if not _is_number(value):
        return "must be a number"
    return "must be above zero" if keyword == "multipleOf" and value <= 0 else ""


def _text_fault(keyword: str, value: Any) -> str:
    if not isinstance(value, str):
        return "must be a string"
    if keyword == "$ref" and not value:
        return "must not be empty"
    return ""


def may_be(kind: str, schema: Mapping[str, Any]) -> bool:
    """Whether the ``type`` of a schema leaves room for values of a type."""
    type_ = schema.get("type", kind)
    return kind in (type_ if isinstance(type_, list) else [type_])


def _list_fault(keyword: str, value: Any) -> str:
    if not isinstance(value, list):
        return "must be a list"
    return "" if value or keyword == "prefixItems" else "must not be empty"


def _other_fault(keyword: str, value: Any) -> str:
    if keyword == "type":
        names = value if isinstance(value, list) else [value]
        ok = names and all(isinstance(name, str) and name in TYPES for name in names)
        return "" if ok else "must be a type's name or a list of them"
    if keyword == "enum":
        return "" if isinstance(value, list) and value else "must be a list that is not empty"
    if keyword == "required":
        return "" if _are_names(value) else "must be a list of strings"
    if keyword == "uniqueItems":
        if not isinstance(value, bool):
            return "must be a boolean"
        return ""
    if keyword == "dependentRequired":
        ok = isinstance(value, dict) and all(_are_names(names) for names in value.values())
        return "" if ok else "must be an object of lists of strings"
    return ""


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
