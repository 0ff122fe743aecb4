"""A reader's place in a choice that is still growing."""

from __future__ import annotations

from typing import NamedTuple

from ..messages import Finish, TokenLogprobs
from .entry import Choice


class News(NamedTuple):
    """What has come since the last look. ``ids`` may run ahead of ``text``, part of which can be
    held back."""

    text: str
    ids: list[int]
    logprobs: list[TokenLogprobs]
    finish: Finish | None
    is_first: bool


class Cursor:
    """Reads a choice piece by piece. A slow reader finds more at once, and costs no memory.

    Ids whose text is still held back are news only with ``every_id``.
    """

    __slots__ = ("_every_id", "_ids", "_logprobs", "_pieces", "_started", "choice", "ended")

    def __init__(self, choice: Choice, *, every_id: bool = False) -> None:
        self.choice = choice
        self._every_id = every_id
        self.ended = False
        self._started = False
        self._pieces = self._ids = self._logprobs = 0

    def take(self) -> News | None:
        """What is new: text, log-probabilities, ids, the end; ``None`` where nothing is."""
        choice = self.choice
        if self.ended or not (choice.finish is not None or self._grown()):
            return None
        news = News(
            "".join(choice.pieces[self._pieces :]),
            choice.ids[self._ids :],
            choice.logprobs[self._logprobs :],
            choice.finish,
            not self._started,
        )
        self._pieces, self._ids = len(choice.pieces), len(choice.ids)
        self._logprobs = len(choice.logprobs)
        self._started = True
        self.ended = choice.finish is not None
        return news

    def _grown(self) -> bool:
        choice = self.choice
        return (
            self._pieces < len(choice.pieces)
            or self._logprobs < len(choice.logprobs)
            or (self._every_id and self._ids < len(choice.ids))
        )
