"""What callers of the engine hold an output to: the fields of the server's routes, as keywords."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

import msgspec

from ..errors import RequestError
from ..front import constraint
from ..front.constraint_fields import ConstraintFields
from ..front.held import Held
from ..front.protocol import decode


class Constraining(TypedDict, total=False):
    """At most one of the first six, and how it is held; see docs/http.md for each.

    ``json_schema`` is a schema or its JSON text, ``choices`` a list of texts, ``ebnf`` and
    ``grammar`` are grammars, ``structural_tag`` is as in requests.
    """

    json_schema: Mapping[str, Any] | bool | str | None
    regex: str | None
    choices: Sequence[str] | None
    ebnf: str | None
    grammar: Any
    structural_tag: Any
    lenient: bool | None
    whitespace: int | None
    on_budget: Literal["close", "cut"] | None


def held(options: Constraining) -> Held | None:
    """The constraint that keywords give; ``RequestError`` for one of the wrong shape."""
    unknown = options.keys() - Constraining.__optional_keys__
    if unknown:
        raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
    fields = {
        "choice" if name == "choices" else name: value
        for name, value in options.items()
        if value is not None
    }
    if not fields:
        return None
    try:
        body = encoded(fields)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RequestError(f"a constraint is no JSON: {error}") from error
    return constraint.held(decode(body, ConstraintFields))


def encoded(value: Any) -> bytes:
    """JSON of what Python writes. ``ValueError`` for numbers that JSON has not.

    msgspec alone writes those as ``null``, which means something else.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=msgspec.to_builtins)
    return text.encode()
