"""A schema taken apart: the plain alternatives that it is a union of.

``$ref``, ``allOf``, ``anyOf``, ``oneOf`` and ``if`` are resolved; what is left of each alternative
is a list of keyword dictionaries that all hold. Keywords that say what must *not* be (``not``, the
other choices of a ``oneOf``) are left out: an alternative may take too much.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from .evaluate import found, satisfies
from .pointer import target

Conjunction = tuple[Any, ...]
"""Schemas that all hold for a value."""

MAX_SHAPES = 512
"""Alternatives of one schema that are looked at."""

_ALL = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))


class Shape:
    """One alternative: ``parts`` are dictionaries of plain keywords that all hold."""

    def __init__(self, parts: Conjunction, root: Any) -> None:
        self.parts = parts
        self._root = root
        self._children: dict[str, Conjunction | None] = {}

    @cached_property
    def types(self) -> frozenset[str]:
        """Names of the types that are left; "number" is with "integer"."""
        types = _ALL
        for part in self.parts:
            named = part.get("type")
            if named is not None:
                names = set(named if isinstance(named, list) else [named])
                types &= names | ({"integer"} if "number" in names else set())
        return types

    @cached_property
    def options(self) -> dict[str, Any] | None:
        """The values of ``enum`` and ``const``, by their text; ``None`` where neither is used."""
        values: list[Any] | None = None
        for part in self.parts:
            for given in ([part["const"]] if "const" in part else None, part.get("enum")):
                if given is None:
                    continue
                texts = {_text(each) for each in given}
                values = given if values is None else [v for v in values if _text(v) in texts]
        if values is None:
            return None
        kept = [
            v
            for v in values
            if _kind(v) & self.types and all(satisfies(v, part, self._root) for part in self.parts)
        ]
        # An engine may write 3.0 as 3.
        return {_text(v): v for v in kept} | {_text(_whole(v)): v for v in kept}

    @cached_property
    def order(self) -> dict[str, int]:
        """Declared keys, and required ones that are not declared, in the order of writing."""
        keys: dict[str, int] = {}
        for part in self.parts:
            for key in part.get("properties", ()):
                keys.setdefault(key, len(keys))
        for key in self.required:
            keys.setdefault(key, len(keys))
        return keys

    @cached_property
    def required(self) -> dict[str, None]:
        """Keys that must be there."""
        return {key: None for part in self.parts for key in part.get("required", ())}

    @cached_property
    def dependent(self) -> dict[str, list[str]]:
        """Keys that must be there if another is."""
        found: dict[str, list[str]] = {}
        for part in self.parts:
            for key, names in part.get("dependentRequired", {}).items():
                found.setdefault(key, []).extend(names)
        return found

    def child(self, key: str) -> Conjunction | None:
        """What must hold for the value of a key; ``None`` if it may not be there."""
        if key not in self._children:
            self._children[key] = self._child(key)
        return self._children[key]

    def _child(self, key: str) -> Conjunction | None:
        found: list[Any] = []
        for part in self.parts:
            known = False
            if key in part.get("properties", ()):
                found.append(part["properties"][key])
                known = True
            for expression, schema in part.get("patternProperties", {}).items():
                if matches(expression, key):
                    found.append(schema)
                    known = True
            if not known and "additionalProperties" in part:
                found.append(part["additionalProperties"])
        if any(each is False for each in found):
            return None
        return tuple(each for each in found if isinstance(each, dict) and each)

    def item(self, index: int) -> Conjunction | None:
        """What must hold for the item at an index; ``None`` if there may be none."""
        found: list[Any] = []
        for part in self.parts:
            prefix = part.get("prefixItems", ())
            if index < len(prefix):
                found.append(prefix[index])
            elif "items" in part:
                found.append(part["items"])
            if part.get("maxItems", index + 1) <= index:
                return None
        if any(each is False for each in found):
            return None
        return tuple(each for each in found if isinstance(each, dict) and each)

    def least(self, keyword: str) -> int:
        """The greatest of all values of a lower bound such as ``minItems``; 0 if there is none."""
        return max((int(part[keyword]) for part in self.parts if keyword in part), default=0)

    def most(self, keyword: str) -> int | None:
        """The smallest of all values of an upper bound such as ``maxLength``."""
        return min((int(part[keyword]) for part in self.parts if keyword in part), default=None)

    def all(self, keyword: str) -> list[Any]:
        """The values of a keyword in all parts."""
        return [part[keyword] for part in self.parts if keyword in part]


class Shapes:
    """The alternatives of the schemas of one document, taken apart when first asked for."""

    __slots__ = ("_judged", "_known", "_root")

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[tuple[int, ...], tuple[Conjunction, tuple[Shape, ...]]] = {}
        self._judged: dict[tuple[int, ...], tuple[Conjunction, bool]] = {}

    def judged(self, schemas: Conjunction) -> bool:
        """Whether these schemas say something of a value that their alternatives leave out."""
        key = tuple(map(id, schemas))
        known = self._judged.get(key)
        if known is None:
            known = self._judged[key] = (schemas, self._has_more(list(schemas)))
        return known[1]

    def _has_more(self, todo: list[Any]) -> bool:
        seen: set[int] = set()
        while todo:
            schema = todo.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            if schema.keys() & _JUDGED:
                return True
            if "$ref" in schema:
                todo.append(target(schema["$ref"], self._root))
            for name in ("allOf", "anyOf"):
                todo += schema.get(name, ())
        return False

    def of(self, schemas: Conjunction) -> tuple[Shape, ...]:
        """The alternatives under which all of some schemas hold."""
        key = tuple(map(id, schemas))
        known = self._known.get(key)
        if known is None:
            shapes = []
            todo: list[_Placed] = [((place,), each) for place, each in enumerate(schemas)]
            for parts in self._expand(todo, [], frozenset()):
                # In the order of the document: that in which an engine writes keys.
                shape = Shape(tuple(part for _, part in sorted(parts, key=_place)), self._root)
                if shape.types:
                    shapes.append(shape)
                if len(shapes) >= MAX_SHAPES:
                    break
            known = self._known[key] = (schemas, tuple(shapes))  # keeps the ids alive
        return known[1]

    def _expand(
        self, todo: list[_Placed], parts: list[_Placed], seen: frozenset[int]
    ) -> Iterator[list[_Placed]]:
        """The ways to choose one of each union; ``todo`` is yet to be taken apart."""
        todo, parts = list(todo), list(parts)
        choices: list[list[_Placed]] = []
        while todo:
            place, schema = todo.pop(0)
            if schema is False:
                return
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen |= {id(schema)}
            if any(key not in _APPLICATORS for key in schema):
                parts.append(((*place, 0), schema))
            if "$ref" in schema:
                todo.append(((*place, 1), target(schema["$ref"], self._root)))
            todo += [((*place, 2, at), each) for at, each in enumerate(schema.get("allOf", ()))]
            for slot, name in enumerate(("anyOf", "oneOf"), 3):
                if name in schema:
                    choices.append([((*place, slot), each) for each in schema[name]])
            if "if" in schema:
                then = {"allOf": [schema["if"], schema.get("then", True)]}
                otherwise = schema.get("else", True)
                choices.append([((*place, 5), then), ((*place, 5), otherwise)])
            for key, then in schema.get("dependentSchemas", {}).items():
                absent = {"properties": {key: False}}
                present = {"required": [key], "allOf": [then]}
                choices.append([((*place, 6), absent), ((*place, 6), present)])
        if not choices:
            yield parts
            return
        for choice in itertools.product(*choices):
            yield from self._expand(list(choice), parts, seen)


_Placed = tuple[tuple[int, ...], Any]
"""A schema with its place in the document."""


def _place(placed: _Placed) -> tuple[int, ...]:
    return placed[0]


_APPLICATORS = frozenset(
    (
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "then",
        "else",
        "not",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "$schema",
        "$id",
        "id",
        "$comment",
    )
)


_JUDGED = frozenset(
    (
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "if",
        "maxProperties",
        "not",
        "oneOf",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    )
)


def matches(expression: str, text: str) -> bool:
    """Whether an expression is found in a text; false where it cannot be read."""
    try:
        return found(expression, text)
    except (re.error, RecursionError, OverflowError):
        return False


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _whole(value: Any) -> Any:
    """The value with whole numbers written without a fraction."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    return value


def _kind(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number", "integer"} if value.is_integer() else {"number"}
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return {names[type(value)]}
