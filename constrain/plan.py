"""What of a schema the engine enforces, and what is left to judge on values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from .ecma import compiled
from .keywords import JUDGED_FORMATS, RENAMED_FORMATS
from .pointer import target
from .refusal import Refusal, UnenforceableError
from .relax import LEVELS, keys_first, loose_always, subschemas
from .rewrite import rewritten
from .schema import checked, children, copied
from .spec import Warning


class SchemaPlan(NamedTuple):
    """``engine`` is a schema for llguidance: it takes every right value, and more only where there
    is a ``residue``. ``exact`` is the user's schema in one spelling (that of draft 2020-12), for
    whoever judges or makes up values. ``warnings`` are keywords that a lenient plan dropped.
    ``looseness`` counts the times that the engine's schema was loosened.
    """

    engine: Any
    exact: Any
    residue: bool
    warnings: tuple[Warning, ...] = ()
    looseness: int = 0


def plan(schema: Any, *, lenient: bool = False) -> SchemaPlan:
    """Plans a schema; ``Refusal`` for what is malformed or cannot be enforced."""
    warnings: list[Warning] = []
    while True:
        try:
            exact = checked(schema)
            break
        except UnenforceableError as refusal:
            if not lenient:
                raise
            schema = without(schema, refusal)
            warnings.append(
                Warning(pointer=refusal.pointer, keyword=refusal.keyword, reason=refusal.reason)
            )
    normalise(exact)
    engine = keys_first(rewritten(copied(exact)))
    loosened = loose_always(engine)
    residue = loosened or _has_judged_formats(exact)
    return SchemaPlan(engine, exact, residue, tuple(warnings))


def without(schema: Any, refusal: UnenforceableError) -> Any:
    """A schema without the keyword that a refusal blames."""
    found = copied(schema)
    holder = target("#" + quote(refusal.pointer, safe="/~"), found)
    assert isinstance(holder, dict)
    del holder[refusal.keyword]
    return found


def relaxed(made: SchemaPlan, reason: str) -> SchemaPlan | None:
    """A plan whose engine's schema takes more; ``None`` if it cannot be loosened further.

    ``reason`` is what the engine says against the last one. ``Refusal`` where an expression can
    neither be enforced nor judged.
    """
    looseness = made.looseness + 1
    if looseness == 1 and "regex" not in reason.lower():
        looseness = 2  # its expressions are not at fault
    if looseness > len(LEVELS):
        return None
    for pointer, keyword in unreadable(made.exact, ""):
        raise Refusal(pointer, keyword, f"an expression that cannot be read: {reason}")
    engine = copied(made.exact)
    for level in LEVELS[:looseness]:
        level(engine)
    engine = keys_first(rewritten(engine))
    loose_always(engine)
    return made._replace(engine=engine, residue=True, looseness=looseness)


def _has_judged_formats(schema: Any) -> bool:
    names = (each.get("format") for each in subschemas(schema))
    return any(isinstance(name, str) and name in JUDGED_FORMATS for name in names)


def unreadable(schema: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Where expressions are that cannot be judged on values: pointers and keywords."""
    if not isinstance(schema, dict):
        return
    for keyword in ("pattern", "patternProperties"):
        said = schema.get(keyword, ())
        try:
            for expression in [said] if isinstance(said, str) else said:
                compiled(expression)
        except (re.error, RecursionError, OverflowError):
            yield pointer, keyword
    for step, child in children(schema):
        yield from unreadable(child, f"{pointer}/{step}")


def normalise(schema: Any) -> None:
    """Turns spellings of earlier drafts into those of 2020-12, at all levels, in place."""
    if not isinstance(schema, dict):
        return
    for bound, open_bound in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(open_bound) is True and bound in schema:
            schema[open_bound] = schema.pop(bound)
        elif isinstance(schema.get(open_bound), bool):
            del schema[open_bound]
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    for key, then in schema.pop("dependencies", {}).items():
        kind = "dependentRequired" if isinstance(then, list | str) else "dependentSchemas"
        schema.setdefault(kind, {})[key] = [then] if isinstance(then, str) else then
    if isinstance(name := schema.get("format"), str):
        schema["format"] = RENAMED_FORMATS.get(name, name)
    for _, child in children(schema):
        normalise(child)
