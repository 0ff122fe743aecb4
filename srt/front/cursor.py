"""A reader's place in a choice that is still growing."""

from __future__ import annotations

from typing import NamedTuple

from ..messages import Finish, TokenLogprobs
from .entry import Choice


class News(NamedTuple):
    """What has come since the last look."""

    text: str
    ids: list[int]
    logprobs: list[TokenLogprobs]
    finish: Finish | None
    is_first: bool


class Cursor:
    """Reads a choice piece by piece. A slow reader finds more at once, and costs no memory."""

    __slots__ = ("_ids", "_logprobs", "_pieces", "_started", "choice", "ended")

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.ended = False
        self._started = False
        self._pieces = self._ids = self._logprobs = 0

    def take(self) -> News | None:
        """What is new, if there is anything to tell: text, log-probabilities, or the end.

        Ids alone are no news: their text is still held back. The first look always is.
        """
        choice = self.choice
        changed = self._pieces < len(choice.pieces) or self._logprobs < len(choice.logprobs)
        if self.ended or not (changed or choice.finish is not None or self._has_begun()):
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

    def _has_begun(self) -> bool:
        return not self._started and bool(self.choice.ids)
