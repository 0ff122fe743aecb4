"""The seam between a grammar and whoever samples under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

MaskRow = npt.NDArray[np.int32]
"""int32[ceil((max token id + 1) / 32)]; bit ``id % 32`` of word ``id // 32`` set: token allowed."""


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

    def consume(self, tokens: Sequence[int]) -> None:
        """Moves on by tokens that the mask allowed; ``ValueError`` otherwise, place unchanged."""
        ...

    def rollback(self, n: int) -> None:
        """Takes the last ``n`` consumed tokens back."""
        ...

    def fork(self) -> Matcher:
        """An independent matcher at the same place."""
        ...

    def forced(self) -> list[int]:
        """Tokens that must come next, as their text is tokenised; empty where there is a choice."""
        ...

    def fill(self, mask_row: MaskRow) -> None:
        """Writes which tokens may come next."""
        ...

    def shortest_completion(self) -> list[int]:
        """Tokens that complete the output from here, end token included."""
        ...
