"""Masks that were computed before: outputs under one constraint begin alike."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from contextlib import suppress

from .matcher import MaskRow

MAX_BYTES = 32 << 20
"""Of all masks that are kept."""

WORTH_KEEPING = 10e-6
"""Seconds from which on to look a mask up is worth the room that it takes."""


class MaskCache:
    """The latest slow masks by what has been written under which constraint.

    A place is a number of 64 bits: a constraint's own at the start, and after each token the hash
    of the one before and the token. If two fell together, a token could be drawn that the grammar
    then refuses.
    """

    __slots__ = ("_limit", "_masks", "_starts")

    def __init__(self, words: int) -> None:
        self._limit = max(1, MAX_BYTES // (4 * words))
        self._masks: OrderedDict[int, MaskRow] = OrderedDict()
        self._starts = itertools.count()

    def start(self) -> int:
        """The place at the start of an output under a constraint that is not known yet."""
        return hash((next(self._starts), "start"))

    def get(self, place: int) -> MaskRow | None:
        """The mask of a place, if it is here. Not to be written to."""
        mask = self._masks.get(place)
        if mask is not None:
            with suppress(KeyError):  # another thread has just forgotten it
                self._masks.move_to_end(place)
        return mask

    def put(self, place: int, mask: MaskRow) -> None:
        """Keeps a copy of a mask, and forgets the one that was not asked for the longest time."""
        if len(self._masks) >= self._limit:
            with suppress(KeyError):
                self._masks.popitem(last=False)
        self._masks[place] = mask.copy()
