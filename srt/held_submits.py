"""Samples that wait for what they are held to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .constraints import Compiling, Constraints
from .errors import RequestError
from .guidance import Guidance
from .messages import Submit
from .scheduler.held import Held


class HeldSubmits:
    """In the order of their arrival; each goes on as soon as its own constraint is there."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._waiting: list[tuple[Submit, Compiling]] = []
        self.guidance = Guidance(constraints.words, constraints.end_ids, constraints.mark)

    @property
    def waiting(self) -> bool:
        """Whether any sample waits."""
        return bool(self._waiting)

    @property
    def ready(self) -> bool:
        """Whether any of them waits no longer."""
        return any(self._is_ready(compiling) for _, compiling in self._waiting)

    def _is_ready(self, compiling: Compiling) -> bool:
        return compiling.done or self._constraints.overdue(compiling)

    def add(self, submit: Submit) -> None:
        """Waits for a sample's constraint. ``RequestError`` where that cannot be."""
        assert submit.constraint is not None
        self._waiting.append((submit, self._constraints.ask(submit.constraint)))

    def take(self) -> Iterator[tuple[Submit, Held | RequestError]]:
        """Samples that wait no longer, each with what it is held to, or why it is refused."""
        waiting, self._waiting = self._waiting, []
        for submit, compiling in waiting:
            assert submit.constraint is not None
            if not self._is_ready(compiling):
                self._waiting.append((submit, compiling))
                continue
            if not compiling.done:
                self._constraints.give_up(submit.constraint)
            try:
                compiled = compiling.result()
                held = Held(compiled.matcher(), compiled.warnings, self.guidance.enter)
            except RequestError as error:
                yield submit, error
            else:
                yield submit, held

    def drop(self, rid: str) -> list[Submit]:
        """Takes a request's samples out."""
        dropped = [submit for submit, _ in self._waiting if submit.rid == rid]
        self._waiting = [each for each in self._waiting if each[0].rid != rid]
        return dropped

    def prepare(self) -> None:
        """See ``Constraints.prepare``."""
        self._constraints.prepare()

    def info(self) -> dict[str, Any]:
        """See ``Constraints.info``."""
        return self._constraints.info()
