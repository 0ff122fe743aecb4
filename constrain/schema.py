"""JSON schemas as users write them: what is malformed, and what says nothing in its draft."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from . import keywords
from .references import localised
from .refusal import Refusal, UnenforceableError

MAX_DEPTH = 64
"""Deepest nesting of subschemas that is taken."""

MAX_BYTES = 1_000_000
"""Longest schema that is taken, as JSON."""


def checked(schema: Any) -> Any:
    """A copy of a schema that is well-formed, without what says nothing in its draft."""
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refusal("", "", f"not a JSON value: {error}") from error
    if len(text) > MAX_BYTES:
        raise Refusal("", "", f"a schema of more than {MAX_BYTES} bytes")
    copy = json.loads(text)
    if not isinstance(copy, dict | bool):
        raise Refusal("", "", "a schema is an object or a boolean")
    if copy is False:
        raise Refusal("", "", "no value satisfies `false`")
    if copy is True:
        copy = {}
    named = keywords.draft(copy)
    _drop(copy, keywords.NOT_YET.get(named, frozenset()), 0)
    if named:
        _drop_beside_references(copy, 0)
    check(copy, "", 0)
    localised(copy, children, check)
    return copy


def _drop(schema: Any, names: frozenset[str], depth: int) -> None:
    """Takes keywords that say nothing out, at all levels."""
    if isinstance(schema, dict) and names and depth <= MAX_DEPTH:
        for name in names & schema.keys():
            del schema[name]
        for _, child in children(schema):
            _drop(child, names, depth + 1)


def _drop_beside_references(schema: Any, depth: int) -> None:
    """Up to draft-07 nothing that stands beside a reference counts."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return
    if isinstance(schema.get("$ref"), str):
        for name in schema.keys() - _BESIDE:
            del schema[name]
    for _, child in children(schema):
        _drop_beside_references(child, depth + 1)


_BESIDE = frozenset(("$ref", "$schema", "$id", "id", "$defs", "definitions"))


def check(schema: Any, pointer: str, depth: int) -> None:
    """Raises ``Refusal`` for the first malformed or unenforceable keyword below ``pointer``."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise Refusal(*_split(pointer), "a schema must be an object or a boolean")
    if depth > MAX_DEPTH:
        raise Refusal(pointer, "", f"nested deeper than {MAX_DEPTH} levels")
    for keyword, value in schema.items():
        reason = keywords.fault(keyword, value)
        if reason:
            raise Refusal(pointer, keyword, reason)
        reason = keywords.unenforced(keyword, value, schema)
        if reason:
            raise UnenforceableError(pointer, keyword, reason)
    for step, child in children(schema):
        check(child, f"{pointer}/{step}", depth + 1)


def children(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The direct subschemas, each with its relative JSON pointer."""
    for keyword, value in schema.items():
        if keyword in keywords.ONE and not (keyword == "items" and isinstance(value, list)):
            yield escaped(keyword), value
        if keyword in keywords.LISTS or keyword == "items":
            if isinstance(value, list):
                yield from ((f"{escaped(keyword)}/{i}", each) for i, each in enumerate(value))
        elif keyword in keywords.MAPS and isinstance(value, dict):
            for name, each in value.items():
                if keyword == "dependencies" and isinstance(each, list | str):
                    continue
                yield f"{escaped(keyword)}/{escaped(name)}", each


def escaped(name: str) -> str:
    """A name as a JSON pointer writes it."""
    if "~" in name or "/" in name:
        return name.replace("~", "~0").replace("/", "~1")
    return name


def copied(value: Any) -> Any:
    """A copy of what JSON can say, all levels of it: a good deal faster than ``deepcopy``."""
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [copied(each) for each in value]
    return value


def _split(pointer: str) -> tuple[str, str]:
    """The schema and the keyword that a pointer to a subschema goes through."""
    parent, _, last = pointer.rpartition("/")
    return parent, last.replace("~1", "/").replace("~0", "~")
