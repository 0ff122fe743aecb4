"""What a request wants its outputs held to, and where in the request it says so."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from sapwood.constrain.spec import Constraint

from ..errors import RequestError
from ..messages import Refused
from .constraint_fields import OnBudget

REFUSED = "constraint_refused"
"""The worker's code for a constraint that is malformed or cannot be enforced. ``param`` is then a
JSON pointer into the schema, or empty."""

_TAG = re.compile(r"^/(?:tags|structures)/(\d+)(?:/schema)?")


class Held(NamedTuple):
    """A constraint. ``path`` is the field of the request that holds its schema, expression or
    grammar: what refusals name."""

    constraint: Constraint
    path: str
    on_budget: OnBudget = "close"

    @property
    def size(self) -> int:
        """Bytes of the constraint as JSON."""
        return len(msgspec.json.encode(self.constraint))


def refusal(refused: Refused, held: Held | None) -> RequestError:
    """The worker's refusal in terms of the request: ``param`` is the constraint's field and, with
    no more than a ``/`` between, the pointer within it."""
    param = refused.param
    if refused.code == REFUSED and held is not None:
        pointer = param or ""
        within = _TAG.sub(r".structures[\1].schema", pointer)
        param = held.path + within
    return RequestError(refused.message, param=param, code=refused.code, status=refused.status)
