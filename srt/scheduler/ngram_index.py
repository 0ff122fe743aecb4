"""Where a request has said the same before: prompt lookup (Saxena 2023), kept up token by token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]

SIZES = (3, 2)
"""Last tokens that are looked for, the longer first."""

_BITS = 21
"""Of a token id: three of them make a key of 63 bits, and no two keys are mistaken."""


class NgramIndex:
    """From each run of 2 and 3 tokens to the position after its latest place.

    Only what has a token after it is in the index, so that the last tokens find earlier places and
    not themselves. ``add`` costs by the tokens that are new, ``draft`` by the tokens it gives.
    """

    __slots__ = ("_known", "_places")

    def __init__(self) -> None:
        self._places: tuple[dict[int, int], ...] = tuple({} for _ in SIZES)
        self._known = 0

    def add(self, tokens: Tokens) -> None:
        """Takes in what has come since the last call; ``tokens`` are all so far."""
        for size, places in zip(SIZES, self._places, strict=True):
            first = max(self._known, size)
            if len(tokens) - first > 8:
                places.update(_all_places(tokens, first, size))
                continue
            for at in range(first, len(tokens)):
                places[_key(tokens[at - size : at].tolist())] = at
        self._known = len(tokens)

    def draft(self, tokens: Tokens, most: int) -> Tokens:
        """What followed the last tokens before, int32[0 or most].

        Where that reaches the end of the tokens it goes round: what was found is a period then.
        """
        for size, places in zip(SIZES, self._places, strict=True):
            if len(tokens) >= size:
                at = places.get(_key(tokens[-size:].tolist()))
                if at is not None:
                    return np.resize(tokens[at : at + most], most)
        return tokens[:0]


def _key(run: list[int]) -> int:
    key = 0
    for token in run:
        key = key << _BITS | token
    return key


def _all_places(tokens: Tokens, first: int, size: int) -> zip[tuple[int, int]]:
    """Keys of the runs that end before positions ``[first, len(tokens))``, with those positions."""
    keys = np.zeros(len(tokens) - first, np.int64)
    for offset in range(size, 0, -1):
        keys = keys << _BITS | tokens[first - offset : len(tokens) - offset]
    return zip(keys.tolist(), range(first, len(tokens)), strict=True)
