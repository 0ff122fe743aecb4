"""Values that stand for what is not known: arguments that are not given, answers of no model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .building import BOOLEAN, FLOAT, INTEGER, STRING
from .runtime import Request

OPEN, CLOSE = "\ue000", "\ue001"
"""Around a stand-in's name: characters for private use, which programs' own texts have not."""

DEPTH = 6


def standin(name: str) -> str:
    """A text that stands for a value; ``shown`` makes ``{name}`` of it."""
    return f"{OPEN}{name}{CLOSE}"


def shown(text: str) -> str:
    """For people."""
    return text.replace(OPEN, "{").replace(CLOSE, "}")


def constant(text: str) -> tuple[str, bool]:
    """What comes before the first stand-in, and whether that is all."""
    head, found, _ = text.partition(OPEN)
    return head, not found


def answer(request: Request) -> str:
    """A text that a ``gen`` could have given."""
    name = standin(request.name or "gen")
    if request.sampling.json_schema is not None:
        root = json.loads(request.sampling.json_schema)
        return json.dumps(_value(root, root, name, 0), ensure_ascii=False)
    return _PLAINEST.get(request.sampling.regex or "", name)


_PLAINEST = {INTEGER: "0", FLOAT: "0.0", STRING: '"text"', BOOLEAN: "True"}


def _value(schema: Any, root: Any, name: str, depth: int) -> Any:
    """The plainest value of a schema, as far as types, enums and lengths go."""
    if not isinstance(schema, Mapping) or depth > DEPTH:
        return None
    if "$ref" in schema:
        return _value(_target(schema["$ref"], root), root, name, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _value(schema[key][0], root, name, depth + 1)
    return _of_type(schema, root, name, depth)


def _of_type(schema: Mapping[str, Any], root: Any, name: str, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else None)
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {key: _value(part, root, name, depth + 1) for key, part in properties.items()}
    if kind == "array":
        items = schema.get("items", {})
        return [_value(items, root, name, depth + 1) for _ in range(schema.get("minItems", 0))]
    plain = {"integer": schema.get("minimum", 0), "number": schema.get("minimum", 0.0)}
    return {**plain, "boolean": True, "string": name}.get(str(kind))


def _target(reference: str, root: Any) -> Any:
    """Where a local reference points to; nothing for others."""
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(found, Mapping):
            return None
        found = found.get(part.replace("~1", "/").replace("~0", "~"))
    return found
