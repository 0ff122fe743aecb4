"""The seam between a grammar and whoever samples under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

MaskRow = npt.NDArray[np.int32]
"""int32[ceil((max token id + 1) / 32)]; bit ``id % 32`` of word ``id // 32`` set: token allowed."""


Verdict = Literal["ok", "veto", "budget"]
"""What ``Matcher.advance`` says of a token. ``veto``: with it, what has been written cannot be
completed any more, though the mask allows it. ``budget``: it cannot be completed in time."""


def mask_words(vocab_size: int) -> int:
    """Words in a mask row that covers ids ``[0, vocab_size)``."""
    return (vocab_size + 31) // 32


class Matcher(Protocol):
    """One request's place in a compiled grammar."""

    @property
    def is_complete(self) -> bool:
        """Nothing but the end of the output can follow."""
        ...

    @property
    def can_stop(self) -> bool:
        """The output may end here."""
        ...

    def fill(self, mask_row: MaskRow) -> None:
        """Writes which tokens may come next."""
        ...

    def advance(self, token: int, remaining: int | None = None) -> Verdict:
        """Moves on by a token that the mask allowed, if a completion is known to remain.

        ``remaining`` is the number of tokens that may follow it, the end token included; ``None``
        is any number. Nothing changes unless the answer is ``ok``. ``ValueError`` for a token that
        the mask does not allow.
        """
        ...

    def forced(self) -> list[int]:
        """Tokens that must come next, as their text is tokenised; empty where there is a choice.

        ``advance`` may say no to one of them for the budget's sake: it and those after it are then
        not to be taken.
        """
        ...

    def completion(self) -> list[int]:
        """Tokens that complete the output from here, the end token last; few, though perhaps not
        the fewest. They have been verified: the masks allow them. Empty if none is known."""
        ...

    def consume(self, tokens: Sequence[int]) -> None:
        """Moves on by tokens that were verified or taken before; ``ValueError``, and no change,
        for tokens that the masks do not allow."""
        ...

    def rollback(self, n: int) -> None:
        """Takes the last ``n`` consumed tokens back."""
        ...

    def fork(self) -> Matcher:
        """An independent matcher at the same place."""
        ...
