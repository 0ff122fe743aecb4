"""References of JSON schemas, all turned into JSON pointers from the root.

Identifiers (``$id``, ``id``), anchors and dynamic references are resolved here, so that whoever
works with the schema later has only ``#/...`` to follow. Nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin

from .keywords import draft
from .pointer import steps, target
from .refusal import Refusal, UnenforceableError

_DEFINITIONS = ("$defs", "definitions")
_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ROOT = "schema://root/"
"""Where a schema is that does not say so itself: a base to which relative references resolve."""

Children = Callable[[Mapping[str, Any]], Iterator[tuple[str, Any]]]
"""Gives the direct subschemas of a schema, each with its relative pointer."""

Check = Callable[[Any, str, int], None]
"""Refuses what is malformed in a schema, given its pointer and its depth."""

Placed = Iterator[tuple[str, Any]]
"""Schemas with their pointers."""


def localised(root: dict[str, Any], children: Children, check: Check) -> None:
    """Turns all references that count into pointers, in place, and takes names away.

    Schemas that only a reference leads to are checked too.

    What is referred to gets a definition of its own, if it is none. Raises ``Refusal`` for a
    reference that leads nowhere in the schema, or back to itself without progress.
    """
    everything = list(_below("", root, children))
    if any(each.keys() & set(_REFERENCES) for _, each in everything):
        _Resolver(root, children).run(check)
        everything = list(_below("", root, children))
        _refuse_loops(root, everything)
    for _, each in everything:
        for name in _NAMES:
            if isinstance(each.get(name), str | bool):
                del each[name]


def _below(pointer: str, schema: Any, children: Children, *, defined: bool = True) -> Placed:
    """A schema and its subschemas; without ``defined``, not those that may never be used."""
    if isinstance(schema, dict):
        yield pointer, schema
        for step, child in children(schema):
            if defined or not step.startswith(_DEFINITIONS):
                yield from _below(f"{pointer}/{step}", child, children, defined=defined)


class _Resolver:
    """One schema's identifiers, and the places that references have led to."""

    __slots__ = (
        "_anchors",
        "_bases",
        "_children",
        "_dynamic",
        "_id",
        "_names",
        "_places",
        "_root",
        "_todo",
    )

    def __init__(self, root: dict[str, Any], children: Children) -> None:
        self._root = root
        self._children = children
        self._id = "id" if draft(root) == "draft-04" else "$id"
        self._places: dict[str, str] = {}  # the pointer of each identified schema
        self._anchors: dict[tuple[str, str], str] = {}
        self._dynamic: dict[str, set[str]] = {}
        self._bases: dict[str, str] = {}  # of subschemas that are known to be such
        self._names: dict[str, str] = {}  # definitions that were made, by pointer
        self._todo: list[str] = []
        self._note(root, "", _ROOT)
        self._places.setdefault(_ROOT, "")

    def _note(self, schema: Any, pointer: str, base: str) -> None:
        """Notes the names of a schema and of its subschemas."""
        if not isinstance(schema, dict):
            return
        named = schema.get(self._id)
        if isinstance(named, str):
            location, anchor = urldefrag(named)
            base = _joined(base, location)
            self._places.setdefault(base, pointer)
            if anchor:  # up to draft-07 an identifier may be an anchor
                self._anchors[base, anchor] = pointer
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._anchors[base, schema[keyword]] = pointer
        if isinstance(schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(schema["$dynamicAnchor"], set()).add(pointer)
        self._bases[pointer] = base
        for step, child in self._children(schema):
            self._note(child, f"{pointer}/{step}", base)

    def run(self, check: Check) -> None:
        """Resolves what can be reached, then gives targets their own names."""
        found: dict[int, tuple[dict[str, Any], list[tuple[str, str]]]] = {}
        self._todo = [""]
        seen: set[str] = set()
        while self._todo:
            start = self._todo.pop()
            if start in seen:
                continue
            seen.add(start)
            there = self._at(start)
            if start not in self._bases:
                check(there, start, 0)
            for pointer, schema in _below(start, there, self._children, defined=False):
                if id(schema) not in found:
                    found[id(schema)] = (schema, self._targets(schema, pointer))
        for _, unused in _below("", self._root, self._children):
            if id(unused) not in found:
                for keyword in _REFERENCES:
                    unused.pop(keyword, None)
        made = self._root.get("$defs")
        definitions: dict[str, Any] = made if isinstance(made, dict) else {}
        for schema, leads in found.values():
            for keyword, to in leads:
                self._lead(schema, keyword, to, definitions)
        if definitions:
            self._root["$defs"] = definitions
        for schema, _ in found.values():
            for name in _NAMES:
                schema.pop(name, None)

    def _at(self, pointer: str) -> Any:
        return target(f"#{quote(pointer)}", self._root)

    def _targets(self, schema: dict[str, Any], pointer: str) -> list[tuple[str, str]]:
        leads = []
        for keyword in _REFERENCES:
            ref = schema.get(keyword)
            if isinstance(ref, str):
                to = self._target(ref, keyword, pointer)
                leads.append((keyword, to))
                self._todo.append(to)
        return leads

    def _target(self, ref: str, keyword: str, pointer: str) -> str:
        """The pointer of what a reference means."""
        if keyword == "$recursiveRef":
            everything = _below("", self._root, self._children)
            moves = any(each.get("$recursiveAnchor") for _, each in everything)
            if moves and len(set(self._places.values())) > 1:
                raise UnenforceableError(pointer, keyword, "recursive references over resources")
        location, fragment = urldefrag(ref)
        base = self._base(pointer)
        place = _joined(base, location) if location else base
        to = self._place(place, unquote(fragment))
        if to is None and location == self._root.get("id"):  # a draft that is not named
            to = self._place(_ROOT, unquote(fragment))
        if to is None:
            reason = f"{ref!r} leads nowhere in the schema, and nothing is fetched"
            if ref.startswith("#"):
                raise Refusal(pointer, keyword, reason)
            raise UnenforceableError(pointer, keyword, reason)
        anchors = self._dynamic.get(fragment, ())
        if keyword == "$dynamicRef" and to in anchors and len(anchors) > 1:
            reason = f"there are several dynamic anchors {fragment!r}"
            raise UnenforceableError(pointer, keyword, reason)
        return to

    def _base(self, pointer: str) -> str:
        """The base of the nearest known schema around a place."""
        while pointer not in self._bases:
            pointer = pointer.rpartition("/")[0]
        return self._bases[pointer]

    def _place(self, location: str, fragment: str) -> str | None:
        """The pointer of a fragment of an identified schema."""
        start = self._places.get(location)
        if start is None:
            return None
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((location, fragment))
        to = start + fragment
        return to if isinstance(self._at(to), dict | bool) else None

    def _lead(self, schema: dict[str, Any], keyword: str, to: str, made: dict[str, Any]) -> None:
        """Makes a reference a pointer to a definition."""
        parts = steps(to)
        if not to or (len(parts) == 2 and parts[0] in _DEFINITIONS):
            ref = f"#{quote(to, safe='/~$')}"
        else:
            if to not in self._names:
                name = f"at{len(self._names)}"
                while name in made:
                    name += "_"
                self._names[to] = name
                made[name] = self._at(to)
            ref = f"#/$defs/{self._names[to]}"
        del schema[keyword]
        if keyword == "$ref" or "$ref" not in schema:
            schema["$ref"] = ref
        else:
            schema["allOf"] = [*schema.get("allOf", ()), {"$ref": ref}]


def _joined(base: str, location: str) -> str:
    """A relative location resolved; names that are no hierarchies replace the base."""
    return location if location.startswith("urn:") else urljoin(base, location)


def _refuse_loops(root: dict[str, Any], everything: list[tuple[str, dict[str, Any]]]) -> None:
    """Refuses references that come back to a schema without having gone into its value."""
    done: set[int] = set()
    for pointer, schema in everything:
        _follow(schema, pointer, root, frozenset(), done)


def _follow(schema: Any, pointer: str, root: Any, around: frozenset[int], done: set[int]) -> None:
    if not isinstance(schema, dict) or id(schema) in done:
        return
    if id(schema) in around:
        raise Refusal(pointer, "$ref", "refers to itself without end")
    around |= {id(schema)}
    for to, each in _in_place(schema, pointer, root):
        _follow(each, to, root, around, done)
    done.add(id(schema))


def _in_place(schema: dict[str, Any], pointer: str, root: Any) -> Placed:
    """The schemas that speak of the same value; a reference keeps the place that it stands at."""
    if isinstance(schema.get("$ref"), str):
        yield pointer, target(schema["$ref"], root)
    for keyword in ("allOf", "anyOf", "oneOf"):
        parts = schema.get(keyword)
        for at, each in enumerate(parts if isinstance(parts, list) else ()):
            yield f"{pointer}/{keyword}/{at}", each
    for keyword in ("not", "if", "then", "else"):
        if keyword in schema:
            yield f"{pointer}/{keyword}", schema[keyword]
    for keyword in ("dependentSchemas", "dependencies"):
        for name, each in (schema.get(keyword) or {}).items():
            yield f"{pointer}/{keyword}/{name}", each
