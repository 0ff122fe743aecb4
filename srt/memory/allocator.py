"""Hands out page numbers; nothing else does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Pages = npt.NDArray[np.int32]


class PageAllocator:
    """A stack of the free pages among ``[0, total)``."""

    def __init__(self, total: int) -> None:
        self.total = total
        # The lowest numbers are on top, so that a little used pool stays a small piece of memory.
        self._stack: Pages = np.arange(total - 1, -1, -1, dtype=np.int32)
        self.n_free = total

    def allocate(self, n: int) -> Pages:
        """``n`` pages, int32[n]; there must be as many free ones."""
        assert n <= self.n_free, f"{n} pages wanted, {self.n_free} free"
        self.n_free -= n
        return self._stack[self.n_free : self.n_free + n][::-1].copy()

    def free(self, pages: Pages) -> None:
        """Takes pages back."""
        assert self.n_free + len(pages) <= self.total, "more pages are freed than there are"
        self._stack[self.n_free : self.n_free + len(pages)] = pages
        self.n_free += len(pages)

    @property
    def free_pages(self) -> Pages:
        """All free pages, in no order; for audits."""
        return self._stack[: self.n_free]
