"""A language small enough to be seen through: one set of tokens for each place, then the end."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt

from sapwood.constrain.matcher import Verdict
from sapwood.constrain.refusal import Refusal
from sapwood.constrain.spec import Choice, Constraint, Warning
from sapwood.srt.constraints import Compiling

END = 0


def slots(*places: str, refused: bool = False, vetoes: str = "") -> Choice:
    """A constraint: at each place one of the tokens of a string like ``"3 4 5"``; those of
    ``vetoes`` are in the masks and taken back."""
    return Choice((*places, f"vetoes {vetoes}", *(["refused"] if refused else [])))


class SlotMatcher:
    """See ``matcher.Matcher``. ``fails_at`` is the place at which it gives up."""

    def __init__(
        self, places: list[list[int]], vetoes: set[int], at: int = 0, fails_at: int | None = None
    ) -> None:
        self.places, self.vetoes, self.at, self.fails_at = places, vetoes, at, fails_at

    @property
    def is_complete(self) -> bool:
        return self.at == len(self.places)

    @property
    def can_stop(self) -> bool:
        return self.is_complete

    def _allowed(self) -> list[int]:
        return [END] if self.is_complete else self.places[self.at]

    def fill(self, mask_row: npt.NDArray[np.int32]) -> None:
        if self.at == self.fails_at:
            raise RuntimeError("the scripted matcher gives up")
        mask_row[:] = 0
        for token in self._allowed():
            mask_row[token // 32] |= np.uint32(1 << token % 32).view(np.int32)

    def advance(self, token: int, remaining: int | None = None) -> Verdict:
        if token not in self._allowed():
            raise ValueError(f"{token} is not allowed at place {self.at}")
        if token in self.vetoes:
            return "veto"
        if remaining is not None and token != END and remaining < len(self.completion()) - 1:
            return "budget"
        self.at += 1
        return "ok"

    def forced(self) -> list[int]:
        found = []
        for place in self.places[self.at :]:
            if len(place) > 1:
                break
            found.append(place[0])
        return found

    def completion(self) -> list[int]:
        rest = [min(set(each) - self.vetoes) for each in self.places[self.at :]]
        return [*rest, END]

    def consume(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            assert token in self._allowed()
            self.at += 1

    def rollback(self, n: int) -> None:
        self.at -= n

    def fork(self) -> SlotMatcher:
        return SlotMatcher(self.places, self.vetoes, self.at, self.fails_at)


class SlotGrammar:
    """See ``compile.Compiled``."""

    engine = "slots"

    def __init__(self, constraint: Choice, fails_at: int | None) -> None:
        places = [option for option in constraint.options if option[0] not in "vr"]
        self._places = [[int(token) for token in place.split()] for place in places]
        vetoes = next(each for each in constraint.options if each.startswith("vetoes"))
        self._vetoes = {int(token) for token in vetoes.split()[1:]}
        self._fails_at = fails_at
        self.warnings: tuple[Warning, ...] = ()

    def matcher(self) -> SlotMatcher:
        return SlotMatcher(self._places, self._vetoes, 0, self._fails_at)


class SlotConstraints:
    """In the place of ``Constraints``. What is ``held_back`` is compiled when told to."""

    words = 2
    end_ids = frozenset({END})

    def __init__(self, *, held_back: bool = False, fails_at: int | None = None) -> None:
        self.held_back = held_back
        self.fails_at = fails_at
        self.late = False
        self.troubles: list[str] = []
        self._waiting: list[tuple[Constraint, Future[Any]]] = []

    def ask(self, constraint: Constraint) -> Compiling:
        future: Future[Any] = Future()
        self._waiting.append((constraint, future))
        if not self.held_back:
            self.compile()
        return Compiling(future, lambda: None, 0.0, 10.0)

    def compile(self) -> None:
        for constraint, future in self._waiting:
            assert isinstance(constraint, Choice)
            if "refused" in constraint.options:
                future.set_exception(Refusal("/at", "word", "not that"))
            else:
                future.set_result(SlotGrammar(constraint, self.fails_at))
        self._waiting = []

    def overdue(self, compiling: Compiling) -> bool:
        return self.late and not compiling.done

    def give_up(self, constraint: Constraint) -> None:
        self._waiting = [each for each in self._waiting if each[0] != constraint]

    def mark(self, why: str) -> None:
        self.troubles.append(why)

    def info(self) -> dict[str, Any]:
        return {"cached": 0}
