"""What a request wants its outputs held to, and where in the request it says so."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import msgspec

from sapwood.constrain.spec import Constraint, Warning

from ..errors import RequestError
from ..messages import Refused

OnBudget = Literal["close", "cut"]
"""See ``messages.Submit``."""

REFUSED = "constraint_refused"
"""The worker's code for a constraint that is malformed or cannot be enforced. ``param`` is then a
JSON pointer into the schema, or empty."""

TOO_LONG = "constraint_timeout"
"""The worker's code for a constraint that takes too long to compile."""

_TAG = re.compile(r"^/(?:tags|structures)/(\d+)(?:/schema)?")


class Held(NamedTuple):
    """A constraint. ``path`` is the field of the request that holds its schema, expression or
    grammar: what refusals name. ``tags`` are the fields that hold the schemas of its tags, where
    they are not in ``structures`` below ``path``."""

    constraint: Constraint
    path: str
    on_budget: OnBudget = "close"
    tags: tuple[str, ...] = ()

    def place(self, pointer: str) -> str:
        """Where in the request is what a pointer into the constraint points to: a field and, with
        no more than a ``/`` between, the pointer within it."""
        tag = _TAG.match(pointer)
        if tag is None:
            return self.path + pointer
        number, within = int(tag[1]), pointer[tag.end() :]
        known = number < len(self.tags)
        return (self.tags[number] if known else f"{self.path}.structures[{number}].schema") + within

    def placed(self, warning: Warning) -> Warning:
        """A warning that tells which of several schemas it is about."""
        if not self.tags:
            return warning
        return msgspec.structs.replace(warning, pointer=self.place(warning.pointer))

    @property
    def size(self) -> int:
        """Bytes of the constraint as JSON."""
        return len(msgspec.json.encode(self.constraint))


def refusal(refused: Refused, held: Held | None, budget_at: str) -> RequestError:
    """The worker's refusal in terms of the request: where ``param`` points into a constraint, to
    the field that holds it too (see ``Held.place``). ``budget_at`` is what ``max_tokens`` is called
    there."""
    param = refused.param
    if refused.code in (REFUSED, TOO_LONG) and held is not None:
        param = held.place(param or "")
    elif param == "max_tokens":
        param = budget_at
    return RequestError(refused.message, param=param, code=refused.code, status=refused.status)
