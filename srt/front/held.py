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

_TAG = re.compile(r"^/tags/(\d+)(/schema)?")
_SCHEMA_OF_TAG = re.compile(r"(?:\.content)?\.\w+$")


class Held(NamedTuple):
    """A constraint. ``path`` is the field of the request that holds its schema, expression or
    grammar: what refusals name. ``tags`` are the fields that hold the schemas of a structural tag's
    tags."""

    constraint: Constraint
    path: str
    on_budget: OnBudget = "close"
    tags: tuple[str, ...] = ()

    def place(self, pointer: str) -> str:
        """Where in the request is what a pointer into the constraint points to: a field and, with
        no more than a ``/`` between, the pointer within it."""
        tag = _TAG.match(pointer)
        if tag is None or int(tag[1]) >= len(self.tags):
            return self.path + pointer
        schema = self.tags[int(tag[1])]
        return (schema if tag[2] else _SCHEMA_OF_TAG.sub("", schema)) + pointer[tag.end() :]

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
    """The worker's refusal in terms of the request: what points into a constraint names the field
    that holds it too (see ``Held.place``). ``budget_at`` is what ``max_tokens`` is called there."""
    message, param = refused.message, refused.param
    if refused.code in (REFUSED, TOO_LONG) and held is not None:
        param = held.place(refused.param or "")
        pointer = refused.param or "/"
        message = f"{param}: {message.removeprefix(f'{pointer}: ')}"
    elif param == "max_tokens":
        param = budget_at
    return RequestError(message, param=param, code=refused.code, status=refused.status)
