"""Who owns which pages of a request. The only place that knows both tree and allocator.

A request's page table has two index intervals: pages ``[0, committed)`` belong to the tree, held by
the request's lease; pages ``[committed, n_pages)`` are its own. Committing moves the border up in
whole pages. A page is free, or in the tree, or one request's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from sapwood.radix import Lease, RadixTree, SharedRun, shared_runs

from .allocator import PageAllocator, Pages

Tokens = npt.NDArray[np.int32]


class Hold:
    """A running request's pages. ``length`` counts the tokens whose pages are in the tree."""

    __slots__ = ("_table", "lease", "n_pages")

    def __init__(self, lease: Lease, pages: Pages) -> None:
        self.lease = lease
        self.n_pages = len(pages)
        self._table = np.empty(len(pages) + 64, np.int32)
        self._table[: len(pages)] = pages

    @property
    def length(self) -> int:
        """Tokens in the tree, a multiple of the page size."""
        return self.lease.length

    @property
    def pages(self) -> Pages:
        """The page table, int32[n_pages]; a view that is valid until the next change."""
        return self._table[: self.n_pages]

    def append(self, pages: Pages) -> None:
        """Adds the request's own pages at the end."""
        stop = self.n_pages + len(pages)
        if stop > len(self._table):
            grown = np.empty(2 * stop, np.int32)
            grown[: self.n_pages] = self.pages
            self._table = grown
        self._table[self.n_pages : stop] = pages
        self.n_pages = stop


class PrefixCache:
    """The KV pool's book-keeping. Lengths and positions count tokens."""

    def __init__(self, tree: RadixTree, allocator: PageAllocator) -> None:
        self._tree = tree
        self._allocator = allocator
        self.page_size = tree.page_size
        self.evicted = 0
        """Pages evicted since the start."""

    @property
    def n_total(self) -> int:
        """Pages of the pool."""
        return self._allocator.total

    @property
    def n_free(self) -> int:
        """Pages that nobody owns."""
        return self._allocator.n_free

    @property
    def n_evictable(self) -> int:
        """Pages of the tree that no request holds."""
        return self._tree.evictable

    @property
    def n_used(self) -> int:
        """Pages that running requests hold or own."""
        return self.n_total - self.n_free - self.n_evictable

    def cached_length(self, namespace: bytes, tokens: Tokens, limit: int) -> int:
        """Tokens of ``tokens[:limit]`` that are in the tree; changes nothing."""
        return self._tree.match(namespace, tokens[:limit]).length

    def open(self, namespace: bytes, tokens: Tokens, limit: int) -> Hold:
        """Holds the longest cached prefix of ``tokens[:limit]``."""
        lease = self._tree.lease(namespace, tokens[:limit])
        return Hold(lease, self._tree.pages_of(lease))

    def grow(self, hold: Hold, stop: int) -> bool:
        """Makes pages exist for positions ``[0, stop)``, evicting where it must.

        ``False``, and nothing changed, where even that would not be enough.
        """
        missing = -(-stop // self.page_size) - hold.n_pages
        if missing <= 0:
            return True
        short = missing - self.n_free
        if short > self.n_evictable:
            return False
        if short > 0:
            self._evict(short)
        hold.append(self._allocator.allocate(missing))
        return True

    def commit(self, hold: Hold, tokens: Tokens, upto: int) -> None:
        """The KV of ``tokens[:upto]`` is complete: its whole pages enter the tree.

        Where another request was first, its pages take the place of this one's.
        """
        size = self.page_size
        start, stop = hold.length, upto // size * size
        if stop <= start:
            return
        own = hold.pages[start // size : stop // size]
        kept, surplus = self._tree.extend(hold.lease, tokens[start:stop], own)
        if len(surplus):
            self._allocator.free(surplus)
            own[:] = kept

    def shrink(self, hold: Hold, stop: int) -> None:
        """Gives back the request's own pages wholly above position ``stop``."""
        keep = max(-(-stop // self.page_size), hold.length // self.page_size)
        if keep < hold.n_pages:
            self._allocator.free(hold.pages[keep:].copy())
            hold.n_pages = keep

    def close(self, hold: Hold) -> None:
        """Frees the request's own pages; what is in the tree stays there until evicted."""
        self.shrink(hold, 0)
        self._tree.release(hold.lease)

    def groups(self, holds: Sequence[Hold], shortest: int) -> list[SharedRun]:
        """Positions that two or more of the requests have in common, on the same pages."""
        return shared_runs([hold.lease for hold in holds], shortest)

    def flush(self) -> int:
        """Evicts everything that no request holds; returns the number of pages."""
        return self._evict(self.n_evictable)

    def _evict(self, n_pages: int) -> int:
        pages = self._tree.evict(n_pages)
        assert len(pages) == n_pages, "an unleased page cannot be reached"
        self._allocator.free(pages)
        self.evicted += n_pages
        return n_pages

    def audit(self, holds: Iterable[Hold]) -> None:
        """Raises ``AssertionError`` unless each page has one owner and every count is right."""
        holds = list(holds)
        owned = [self._allocator.free_pages]
        owned += [hold.pages[hold.length // self.page_size :] for hold in holds]
        owned += [node.pages for _, node in self._tree.nodes()]
        everyone = np.sort(np.concatenate(owned))
        assert np.array_equal(everyone, np.arange(self.n_total)), "a page has no owner, or two"
        self._tree.audit([hold.lease for hold in holds])
        for hold in holds:
            held = self._tree.pages_of(hold.lease)
            assert np.array_equal(held, hold.pages[: len(held)]), "a page table is not the tree's"
