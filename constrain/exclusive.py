"""``oneOf`` said as ``anyOf``: each choice with the negation of those that it may overlap with."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from .negation import InexpressibleError, conjunct, negated
from .pointer import target

MAX_CHOICES = 24
"""``oneOf`` of more choices is left as it is: the pairs to look at grow with its square."""

Disjoint = Callable[[Any, Any], bool]
"""Whether two schemas have certainly no value in common."""


def exclusive(choices: list[Any], root: Any, disjoint: Disjoint) -> Any:
    """A schema that takes what exactly one of the choices takes. Raises ``InexpressibleError``."""
    if len(choices) > MAX_CHOICES:
        raise InexpressibleError
    others: list[list[Any]] = [[] for _ in choices]
    for i, first in enumerate(choices):
        for j, second in enumerate(choices[:i]):
            if not disjoint(first, second):
                others[i].append(negated(second, root, names=closed_names(first, root)))
                others[j].append(negated(first, root, names=closed_names(second, root)))
    kept = [
        conjunct([choice, *excluded])
        for choice, excluded in zip(choices, others, strict=True)
        if False not in excluded
    ]
    if not kept:
        raise InexpressibleError
    return copy.deepcopy(kept[0] if len(kept) == 1 else {"anyOf": kept})


def closed_names(schema: Any, root: Any) -> frozenset[str] | None:
    """The only names that an object of this schema may have; ``None`` where others are allowed."""
    for _ in range(8):
        if not isinstance(schema, dict):
            return None
        if "$ref" not in schema:
            break
        schema = target(str(schema["$ref"]), root)
    if not isinstance(schema, dict) or schema.get("additionalProperties") is not False:
        return None
    if schema.get("patternProperties"):
        return None
    return frozenset(schema.get("properties", {}))


def wrapped(first: Any, second: Any, root: Any) -> Any:
    """A schema of the values that both take, with what their references lead to.

    ``None`` where a reference may lead elsewhere than it does in ``root``.
    """
    text = json.dumps(root)
    if '"$ref": "#"' in text or '"$ref": "#/allOf' in text:
        return None
    kept = {
        key: value
        for key, value in (root.items() if isinstance(root, dict) else ())
        if key in ("$schema", "$id", "id", "$defs", "definitions")
    }
    return {**kept, "allOf": [first, second]}
