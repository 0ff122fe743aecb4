"""What has happened since it was last asked: what the other processes must hear of."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import RequestError
from ..messages import Finish, Opened, Refused, Submit, TokenItem, TokenLogprobs
from .task import Task


class Events(NamedTuple):
    """``opened`` samples started and come before their ``items``; ``refused`` will not run."""

    opened: list[Opened]
    refused: list[Refused]
    items: list[TokenItem]

    def __bool__(self) -> bool:
        return bool(self.opened or self.refused or self.items)


class Drawn(NamedTuple):
    """Tokens that a sample has got, from output index ``start`` on."""

    start: int
    ids: list[int]
    logprobs: list[TokenLogprobs] | None


class Outbox:
    """Collects events until they are taken."""

    def __init__(self) -> None:
        self._events = Events([], [], [])

    def take(self) -> Events:
        """All events since the last call."""
        events, self._events = self._events, Events([], [], [])
        return events

    def refuse(self, submit: Submit, error: RequestError) -> None:
        """A sample will not run."""
        self._events.refused.append(
            Refused(
                rid=submit.rid,
                choice=submit.choice,
                epoch=submit.epoch,
                message=error.message,
                status=error.status,
                param=error.param,
                code=error.code,
            )
        )

    def open(self, task: Task) -> None:
        """A sample starts; once."""
        task.opened = True
        self._events.opened.append(task.opening)

    def report(self, task: Task, drawn: Drawn | None, finish: Finish | None) -> None:
        """A sample has new tokens, or ends. Its scores go with the first report."""
        request = task.request
        scored = None if task.reported else task.scored
        warnings = None if task.reported else task.warnings or None
        task.reported = True
        start, ids, logprobs = drawn or Drawn(request.output_len, [], None)
        self._events.items.append(
            TokenItem(
                request.rid,
                request.choice,
                request.epoch,
                start,
                ids,
                request.cached or 0,
                logprobs,
                scored,
                finish,
                warnings,
            )
        )
