"""Hands out page numbers; nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Pages = npt.NDArray[np.int32]


class PageAllocator:
    """A stack of the free pages among ``[0, total)``.

    ``on_free`` sees the pages that are given back, after they are free: a test may spoil them
    (``KVPool.poison_pages``), so that a read of a freed page shows.
    """

    def __init__(self, total: int, on_free: Callable[[Pages], None] | None = None) -> None:
        self.total = total
        self._on_free = on_free
        # The lowest numbers are on top, so that a little used pool stays a small piece of memory.
        self._stack: Pages = np.arange(total - 1, -1, -1, dtype=np.int32)
        self.n_free = total

    def allocate(self, n: int) -> Pages:
        """``n`` pages, int32[n]; there must be as many free ones."""
        assert n <= self.n_free, f"{n} pages wanted, {self.n_free} free"
        self.n_free -= n
        return self._stack[self.n_free : self.n_free + n][::-1].copy()

    def free(self, pages: Pages) -> None:
        """Takes pages back. That each was out, and is here once, is proved by an audit only."""
        assert self.n_free + len(pages) <= self.total, "more pages are freed than there are"
        self._stack[self.n_free : self.n_free + len(pages)] = pages
        self.n_free += len(pages)
        if self._on_free is not None:
            self._on_free(pages)

    @property
    def free_pages(self) -> Pages:
        """All free pages, in no order; for audits."""
        return self._stack[: self.n_free]
