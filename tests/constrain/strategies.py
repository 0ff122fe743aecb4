"""Schemas made up by hypothesis, over the keywords that are enforced."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "ab", "id", "näme", "x y", '"q"')
PATTERNS = ("^[a-c]+$", "b", "^x-", r"^\d{2,4}$", "^(on|off)$", "z$", r'^"\\')
FORMATS = ("date", "time", "date-time", "email", "ipv4", "ipv6", "uuid", "uri", "hostname")

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-20, 20)
    | st.sampled_from([0.5, -1.25, 3.0])
    | st.sampled_from(["", "a", "ab", "b c", "ä", '"'])
)
literals = (
    scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.sampled_from(NAMES), scalars)
)


@st.composite
def _strings(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    kind = draw(st.sampled_from(("free", "lengths", "pattern", "format", "both")))
    if kind in ("lengths", "both"):
        low = draw(st.integers(0, 4))
        schema |= {"minLength": low, "maxLength": low + draw(st.integers(0, 6))}
    if kind in ("pattern", "both"):
        schema["pattern"] = draw(st.sampled_from(PATTERNS))
    if kind == "format":
        schema["format"] = draw(st.sampled_from(FORMATS))
    return schema


@st.composite
def _numbers(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(("integer", "number")))}
    low = draw(st.integers(-50, 50))
    for name, value in (
        ("minimum", low),
        ("maximum", low + draw(st.integers(0, 30))),
        ("exclusiveMinimum", low - 1),
        ("exclusiveMaximum", low + 31),
    ):
        if draw(st.integers(0, 2)) == 0:
            schema[name] = value
    if draw(st.integers(0, 4)) == 0:
        schema["multipleOf"] = draw(st.sampled_from((2, 5, 0.5, 0.01)))
    return schema


@st.composite
def _arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    if draw(st.booleans()):
        schema["items"] = draw(inner)
    if draw(st.integers(0, 3)) == 0:
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=2))
    if draw(st.booleans()):
        low = draw(st.integers(0, 2))
        schema |= {"minItems": low, "maxItems": low + draw(st.integers(0, 3))}
    if draw(st.integers(0, 3)) == 0:
        schema["uniqueItems"] = True
    if draw(st.integers(0, 4)) == 0:
        schema["contains"] = draw(inner)
    return schema


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    names = st.sampled_from(NAMES)
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = draw(st.dictionaries(names, inner, max_size=3))
    schema["required"] = draw(st.lists(names, unique=True, max_size=2))
    kind = draw(st.integers(0, 5))
    if kind <= 2:
        schema["additionalProperties"] = False
    elif kind == 3:
        schema["additionalProperties"] = draw(inner)
    more = draw(st.integers(0, 9))
    if more == 0:
        schema["maxProperties"] = draw(st.integers(0, 3))
    elif more == 1:
        schema["minProperties"] = draw(st.integers(1, 3))
    elif more == 2:
        schema["dependentRequired"] = {draw(names): [draw(names)]}
    elif more == 3:
        schema["propertyNames"] = {"maxLength": draw(st.integers(1, 4))}
    elif more == 4:
        schema["patternProperties"] = {"^x": draw(inner)}
    return schema


def _combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    return (
        lists.map(lambda each: {"anyOf": each})
        | lists.map(lambda each: {"oneOf": each})
        | st.tuples(inner, inner).map(lambda each: {"allOf": list(each)})
        | st.tuples(inner, inner).map(lambda each: {**each[0], "not": each[1]})
        | st.tuples(inner, inner, inner).map(
            lambda each: {"if": each[0], "then": each[1], "else": each[2]}
        )
    )


_leaves = (
    _strings()
    | _numbers()
    | st.lists(literals, min_size=1, max_size=3).map(lambda each: {"enum": each})
    | literals.map(lambda each: {"const": each})
    | st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}])
)

schemas: st.SearchStrategy[dict[str, Any]] = st.recursive(
    _leaves, lambda inner: _arrays(inner) | _objects(inner) | _combined(inner), max_leaves=6
)
"""Schemas of draft 2020-12; some of them no value satisfies."""


@st.composite
def recursive_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Schemas that refer to themselves, and can end."""
    leaf = draw(schemas)
    node = {
        "type": "object",
        "properties": {
            "value": leaf,
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
        },
        "required": draw(st.lists(st.sampled_from(["value", "next", "children"]), unique=True)),
        "additionalProperties": False,
    }
    return {"$ref": "#/$defs/node", "$defs": {"node": node}}
