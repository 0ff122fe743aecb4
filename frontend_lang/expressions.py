"""What programs append to a state: descriptions only, nothing runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .choices import ChoicesMethod


class Expression:
    """Something that can be appended to a state; ``+`` joins expressions and texts."""

    __slots__ = ()

    def __add__(self, other: Expression | str) -> Sequence:
        return Sequence((*leaves(self), *leaves(other)))

    def __radd__(self, other: str) -> Sequence:
        return Sequence((*leaves(other), *leaves(self)))


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """A constant."""

    text: str


@dataclass(frozen=True, slots=True)
class Begin(Expression):
    """Opens a role. ``fields`` are further ones of its message (``tool_call_id``)."""

    role: str
    fields: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class End(Expression):
    """Closes a role; its text becomes a message."""

    role: str


@dataclass(frozen=True, slots=True)
class Gen(Expression):
    """Text from the model. ``given`` are the parameters that were set; ``parse`` reads the text,
    and where ``typed`` its result is the variable's value."""

    name: str | None
    given: Mapping[str, Any]
    parse: Callable[[str], Any] | None = None
    typed: bool = False


@dataclass(frozen=True, slots=True)
class Select(Expression):
    """The likeliest of some texts."""

    name: str | None
    choices: tuple[str, ...]
    method: ChoicesMethod


@dataclass(frozen=True, slots=True)
class Sequence(Expression):
    """Expressions one after the other; holds leaves only."""

    parts: tuple[Expression, ...]


def leaves(given: Any) -> Iterator[Expression]:
    """Flattens; ``TypeError`` for what cannot be appended, ``ValueError`` for ``None``."""
    if isinstance(given, str):
        yield Text(given)
    elif isinstance(given, Sequence):
        yield from given.parts
    elif isinstance(given, Expression):
        yield given
    elif given is None:
        raise ValueError("None was appended to a state; does a function lack its return?")
    else:
        raise TypeError(f"{type(given).__name__} cannot be appended to a state")
