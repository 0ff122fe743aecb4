"""What a step costs by the number of its tokens: measured while serving, not assumed."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

TRUSTED = 3
"""Measurements of a size before it counts: one may have been disturbed."""

KEPT = 9
"""Latest measurements of a size; their median counts."""

FORGOTTEN = 512
"""Steps after which a size that has not been seen again is unknown: what was once slow may not be
so now, and only trying tells."""


class StepCosts:
    """Seconds of steps in which every row generates. Sizes are those of one bucket from 8 on."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[tuple[int, float]]] = {}
        self._last: dict[int, int] = {}
        self._steps = 0

    def add(self, n_tokens: int, seconds: float) -> None:
        """Takes in a measured step."""
        self._steps += 1
        size = _bucket(n_tokens)
        if size not in self._seen or self._steps - self._last[size] >= FORGOTTEN:
            self._seen[size] = deque(maxlen=KEPT)
        self._seen[size].append((n_tokens, seconds))
        self._last[size] = self._steps

    def of(self, n_tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Seconds for each of some sizes, in between what is known; never less for more tokens.

        Beyond the largest known size further tokens cost nothing, so that they are tried.
        """
        sizes, seconds = [], []
        for size, seen in sorted(self._seen.items()):
            if len(seen) >= TRUSTED and self._steps - self._last[size] < FORGOTTEN:
                sizes.append(sum(n for n, _ in seen) / len(seen))
                seconds.append(sorted(s for _, s in seen)[len(seen) // 2])
        if not sizes:
            return np.ones(len(n_tokens))
        known: npt.NDArray[np.float64] = np.maximum.accumulate(np.array(seconds))
        return np.interp(n_tokens, sizes, known)


def _bucket(n_tokens: int) -> int:
    """Four buckets for each doubling."""
    coarse = max(n_tokens.bit_length() - 3, 0)
    return n_tokens >> coarse << coarse
