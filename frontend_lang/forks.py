"""Branches of a state, and roles as blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .expressions import Begin, End, Expression
from .line import Line
from .operations import Concatenate, Gather, Look, copied
from .sites import site
from .variables import Variable

if TYPE_CHECKING:
    from .state import State


class ForkGroup:
    """States that were forked from one. As a context manager it joins at its end."""

    def __init__(self, parent: Line, start: Look, states: Sequence[State]) -> None:
        self._parent = parent
        self._start = start
        self._inherited = dict(parent.variables)
        self.states = list(states)

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, at: int) -> State:
        return self.states[at]

    def __setitem__(self, at: int, state: State) -> None:
        """What ``forks[i] += ...`` ends with; ``ValueError`` for another state."""
        if self.states[at] is not state:
            raise ValueError("the states of a fork are its own: append to them with +=")

    def __iter__(self) -> Iterator[State]:
        return iter(self.states)

    def __iadd__(
        self, other: Expression | str | Sequence[Expression | str] | Callable[[int], Any]
    ) -> Self:
        """Appends to each state: the same, or one of a list, or what a function of the state's
        number returns (nothing where that is ``None``)."""
        if callable(other):
            for at, state in enumerate(self.states):
                made = other(at)
                if made is not None:
                    state += made
        elif isinstance(other, str | Expression):
            for state in self.states:
                state += other
        else:
            for state, one in zip(self.states, other, strict=True):
                state += one
        return self

    def join(self, mode: str = "gather_variable") -> None:
        """Brings the branches' results into the state that was forked; it does not wait.

        ``gather_variable``: each variable that is new in a branch becomes a list there, in the
        branches' order. ``concate_and_append``: the texts written since the fork are appended.
        """
        where = f"join() at {site()}"
        if mode == "gather_variable":
            self._gather(self._new_names(), where)
        elif mode == "concate_and_append":
            ends = [Look(copied, where) for _ in self.states]
            for state, look in zip(self.states, ends, strict=True):
                state._line.put(look)
            promises = [look.promise for look in ends]
            self._parent.put(Concatenate(self._start.promise, promises, where))
        else:
            raise ValueError(f"join mode {mode!r}: gather_variable or concate_and_append")

    def gather_unknown(self, where: str) -> None:
        """Like ``join``, but leaves the parent's own variables as they are."""
        known = self._parent.variables
        self._gather([name for name in self._new_names() if name not in known], where)

    def _gather(self, names: Sequence[str | None], where: str) -> None:
        for name in names:
            sources = [s._line.variables[name] for s in self.states if self._is_new(s, name)]
            variable = self._parent.declare(name, Variable())
            self._parent.put(Gather(sources, variable, where))

    def _new_names(self) -> list[str | None]:
        names: dict[str | None, None] = {}
        for state in self.states:
            names |= {name: None for name in state._line.variables if self._is_new(state, name)}
        return list(names)

    def _is_new(self, state: State, name: str | None) -> bool:
        variable = state._line.variables.get(name)
        return variable is not None and variable is not self._inherited.get(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.join()


class Scope:
    """A role as a block: what is appended inside is its message."""

    def __init__(self, state: State, begin: Begin | None = None, end: End | None = None) -> None:
        self._state = state
        self._begin = begin
        self._end = end

    def __enter__(self) -> State:
        if self._begin is not None:
            self._state += self._begin
        return self._state

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None and self._end is not None:
            self._state += self._end
