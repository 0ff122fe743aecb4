"""JSON schemas of Python types, and values of those types from JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

Parse = Callable[[str], Any]


class Shape(NamedTuple):
    """What a ``gen`` is held to: a schema's JSON text, how its answer is read, and whether the
    variable's value is the parsed answer (it is where a type was given)."""

    schema: str
    parse: Parse
    typed: bool


def shape(given: Any) -> Shape:
    """Of a schema (a mapping, or its JSON text), or of a type: a pydantic model, a msgspec struct,
    a dataclass, a ``TypedDict``, or whatever else msgspec knows (``list[int]``).

    Objects of types take no keys but their own. ``TypeError`` for what is neither.
    """
    if isinstance(given, str):
        return Shape(given, json.loads, False)
    if isinstance(given, Mapping):
        return Shape(json.dumps(given), json.loads, False)
    if hasattr(given, "model_json_schema") and hasattr(given, "model_validate_json"):
        return Shape(_closed_text(given.model_json_schema()), given.model_validate_json, True)
    if dataclasses.is_dataclass(given) and hasattr(given, "__pydantic_validator__"):
        return _of_pydantic_dataclass(given)
    return _of_msgspec(given)


def _of_msgspec(given: Any) -> Shape:
    try:
        schema = msgspec.json.schema(given)
    except TypeError as error:
        raise TypeError(
            f"json_schema is {given!r}: neither a schema nor a type that has one ({error})"
        ) from error
    decoder = msgspec.json.Decoder(given)
    return Shape(_closed_text(schema), decoder.decode, True)


def _of_pydantic_dataclass(given: Any) -> Shape:
    from pydantic import TypeAdapter

    adapter: Any = TypeAdapter(given)
    return Shape(_closed_text(adapter.json_schema()), adapter.validate_json, True)


def _closed_text(schema: Any) -> str:
    return json.dumps(_closed(schema))


def _closed(schema: Any) -> Any:
    """The same with ``additionalProperties: false`` where an object names its properties and says
    nothing of others: they would be dropped when the answer is read."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        key: value if key in ("default", "const", "enum", "examples") else _each(key, value)
        for key, value in schema.items()
    }
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _each(key: str, value: Any) -> Any:
    if key in ("properties", "$defs") and isinstance(value, dict):
        return {name: _closed(part) for name, part in value.items()}
    return _closed(value)
