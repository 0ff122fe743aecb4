"""Keywords that llguidance lacks, said in those that it has.

Every rule here keeps the set of valid values; where none applies the keyword stays, and llguidance
refuses the schema.
"""

from __future__ import annotations

from typing import Any

from . import keywords
from .negation import InexpressibleError, negated
from .pointer import target

Schema = dict[str, Any]


def rewritten(root: Any) -> Any:
    """The schema with every rule applied at every level. Works on the given object."""
    return _Rewriter(root).rewrite(root)


class _Rewriter:
    """One pass over a schema: every subschema once, also those that only a reference leads to."""

    __slots__ = ("_root", "_seen")

    def __init__(self, root: Any) -> None:
        self._root = root
        self._seen: dict[int, Any] = {}  # holds the objects, so that no id comes back

    def rewrite(self, schema: Any) -> Any:
        if not isinstance(schema, dict) or id(schema) in self._seen:
            return schema
        self._seen[id(schema)] = schema
        schema.pop("x-guidance", None)  # the engine would take its options from users' schemas
        extra: list[Any] = []
        _drop_idle(schema)
        _formats(schema)
        for rule in (_dependencies, _conditional, _negation, _names):
            rule(schema, self._root, extra)
        self._descend(schema)
        if extra:
            schema["allOf"] = schema.get("allOf", []) + [self.rewrite(each) for each in extra]
        return schema

    def _descend(self, schema: Schema) -> None:
        if isinstance(schema.get("$ref"), str):
            self.rewrite(target(schema["$ref"], self._root))
        for keyword, value in list(schema.items()):
            if keyword in keywords.ONE and isinstance(value, dict):
                self.rewrite(value)
            elif (keyword in keywords.LISTS or keyword == "items") and isinstance(value, list):
                for each in value:
                    self.rewrite(each)
            elif keyword in keywords.MAPS and isinstance(value, dict):
                for each in value.values():
                    self.rewrite(each)


def _drop_idle(schema: Schema) -> None:
    """Drops keywords that, as they are used, say nothing."""
    if schema.get("uniqueItems") is False:
        del schema["uniqueItems"]
    if "contains" not in schema:
        schema.pop("minContains", None)
        schema.pop("maxContains", None)


def _formats(schema: Schema) -> None:
    """Drops names of formats that no draft defines; says others as patterns."""
    name = schema.get("format")
    if not isinstance(name, str):
        return
    if name not in keywords.ENGINE_FORMATS:
        del schema["format"]
    pattern = keywords.FORMAT_PATTERNS.get(name) or keywords.FORMAT_LIMITS.get(name)
    if pattern and "pattern" not in schema:
        schema["pattern"] = pattern
    elif pattern:
        schema["allOf"] = [*schema.get("allOf", []), {"pattern": pattern}]


def _dependencies(schema: Schema, root: Any, extra: list[Any]) -> None:
    """Either the key is absent, or what depends on it holds."""
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        for key, then in schema.pop(keyword, {}).items():
            if isinstance(then, str):
                then = [then]
            if isinstance(then, list):
                present: Schema = {"required": sorted({key, *then})}
                if not then:
                    continue
            else:
                present = {"allOf": [{"required": [key]}, then]}
            extra.append({"anyOf": [{"properties": {key: False}}, present]})


def _conditional(schema: Schema, root: Any, extra: list[Any]) -> None:
    """Either the condition and ``then``, or its negation and ``else``."""
    if "if" not in schema:
        schema.pop("then", None)
        schema.pop("else", None)
        return
    if "then" not in schema and "else" not in schema:
        del schema["if"]
        return
    try:
        otherwise = negated(schema["if"], root)
    except InexpressibleError:
        return
    condition = schema.pop("if")
    extra.append(
        {
            "anyOf": [
                {"allOf": [condition, schema.pop("then", True)]},
                {"allOf": [otherwise, schema.pop("else", True)]},
            ]
        }
    )


def _negation(schema: Schema, root: Any, extra: list[Any]) -> None:
    if "not" in schema:
        try:
            extra.append(negated(schema["not"], root))
        except InexpressibleError:
            return
        del schema["not"]


def _names(schema: Schema, root: Any, extra: list[Any]) -> None:
    """``propertyNames`` of one pattern, where nothing else speaks of names."""
    names = schema.get("propertyNames")
    if names is True or names == {}:
        del schema["propertyNames"]
        return
    if not isinstance(names, dict) or schema.keys() & {"properties", "patternProperties"}:
        return
    said = {key for key in names if key not in ("type", "description", "title", "$comment")}
    if said == {"pattern"} and keywords.may_be("string", names):
        del schema["propertyNames"]
        value = schema.get("additionalProperties", True)
        schema["patternProperties"] = {names["pattern"]: value}
        schema["additionalProperties"] = False
