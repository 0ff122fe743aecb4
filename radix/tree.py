"""The prefix tree: token sequences to pages of KV, shared by whoever has a prefix in common."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .node import Ints, Node, common_prefix, first_page
from .policy import EvictionPolicy, LeastRecentlyUsed

_NO_PAGES: Ints = np.empty(0, np.int32)


class Match(NamedTuple):
    """The longest cached prefix of a sequence, in whole pages."""

    length: int
    pages: Ints


class SharedRun(NamedTuple):
    """Positions ``[start, stop)`` that the leases of these indices have in common."""

    indices: tuple[int, ...]
    start: int
    stop: int


class Lease:
    """Holds the path from a root to a node: nothing on it is evicted until it is released."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node: Node | None = node

    @property
    def length(self) -> int:
        """Tokens from the root to the end of the path."""
        return 0 if self.node is None else self.node.end


class RadixTree:
    """Maps token sequences to page numbers, a root for each namespace.

    ``match`` is a pure read; a node is split when a lease is taken or a tail inserted. ``match``,
    ``lease`` and ``extend`` cost by the length of the sequence, ``evict`` by what it frees (times
    the logarithm of the number of leaves), and nothing by the size of the tree. Lengths are
    multiples of ``page_size``.
    """

    def __init__(self, page_size: int = 1, policy: EvictionPolicy | None = None) -> None:
        self.page_size = page_size
        self._policy = LeastRecentlyUsed() if policy is None else policy
        self._roots: dict[bytes, Node] = {}
        self._clock = itertools.count(1)
        self._tickets = itertools.count(1)
        self._names: dict[Node, bytes] = {}
        # (*rank, ticket, node), flat: a heap of nested tuples takes half as long again.
        self._heap: list[tuple[Any, ...]] = []
        self.total = 0
        """Pages in the tree."""
        self.evictable = 0
        """Pages that no lease holds."""

    @property
    def held(self) -> int:
        """Pages that leases hold."""
        return self.total - self.evictable

    def match(self, namespace: bytes, tokens: Ints) -> Match:
        """The longest cached prefix; changes nothing."""
        length, found = 0, []
        for node, n in self._walk(namespace, tokens):
            found.append(node.pages[: n // self.page_size])
            length += n
        return Match(length, np.concatenate(found) if found else _NO_PAGES)

    def lease(self, namespace: bytes, tokens: Ints) -> Lease:
        """Holds the longest cached prefix of ``tokens`` (perhaps nothing but the root)."""
        last = self._root(namespace)
        for node, n in self._walk(namespace, tokens):
            last = node if n == node.length else self._split(node, n)
        now = next(self._clock)
        for node in _path(last):
            self._hold(node, now)
        return Lease(last)

    def extend(self, lease: Lease, tokens: Ints, pages: Ints) -> tuple[Ints, Ints]:
        """Adds whole pages after the lease's end, which moves behind them.

        Returns the tree's pages of these tokens, and those of the caller's that it does not keep:
        where the tree has some of the tokens already, its own pages win.
        """
        assert len(tokens) == len(pages) * self.page_size, "whole pages"
        node = lease.node
        assert node is not None, "the lease has been released"
        if node.leases == 1 and not node.children and node.parent is not None:
            node.append(tokens, pages)  # nobody else sees this node
            self.total += len(pages)
            return pages, _NO_PAGES
        return self._extend(lease, tokens, pages)

    def release(self, lease: Lease) -> None:
        """Lets go of the path; what nobody else holds becomes evictable."""
        last, lease.node = lease.node, None
        assert last is not None, "a lease is released once"
        now = next(self._clock)
        for node in _path(last):
            node.leases -= 1
            node.last_used = now  # it was in use until now, however long ago it was leased
            if node.leases == 0:
                self.evictable += node.n_pages
        self._settle(last)

    def favour(self, lease: Lease, *, priority: int = 0, uses: int = 0) -> None:
        """Raises what a policy sees of the lease's path, never lowers it.

        To a ``priority``, and pinned for the tree's next ``uses``. Nodes that an ``extend`` adds
        later are not favoured: call it last before the release.
        """
        assert lease.node is not None, "the lease has been released"
        until = next(self._clock) + uses
        for node in _path(lease.node):
            node.priority = max(node.priority, priority)
            if uses:
                node.pinned_until = max(node.pinned_until, until)

    def evict(self, n_pages: int) -> Ints:
        """Takes up to ``n_pages`` unleased pages out, ends of leaves first; returns them."""
        freed: list[Ints] = []
        missing = n_pages
        while missing > 0 and self._heap:
            entry = heapq.heappop(self._heap)
            if not _is_current(entry):
                continue
            node: Node = entry[-1]
            taken = node.cut(min(missing, node.n_pages), self.page_size)
            freed.append(taken)
            missing -= len(taken)
            if node.n_pages:
                heapq.heappush(self._heap, entry)
            else:
                self._remove(node)
        gone = np.concatenate(freed) if freed else _NO_PAGES
        self.total -= len(gone)
        self.evictable -= len(gone)
        return gone

    def _walk(self, namespace: bytes, tokens: Ints) -> Iterator[tuple[Node, int]]:
        """The nodes that ``tokens`` run through, each with how many of its tokens they have."""
        node = self._roots.get(namespace)
        size = self.page_size
        place, stop = 0, len(tokens) // size * size
        while node is not None and place < stop:
            rest = tokens[place:stop]
            node = node.children.get(first_page(rest, size))
            if node is None:
                return
            n = common_prefix(node.tokens, rest) // size * size
            ends = n < node.length  # asked before the caller may split the node
            yield node, n
            if ends:
                return
            place += n

    def _root(self, namespace: bytes) -> Node:
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Node(None, 0, _NO_PAGES, _NO_PAGES, 0)
            self._names[root] = namespace
        return root

    def _split(self, node: Node, at: int) -> Node:
        """Cuts a node in two; returns the upper part. What any lease holds stays the same."""
        upper = node.split(at, self.page_size)
        assert upper.parent is not None
        upper.parent.children[upper.key] = upper
        return upper

    def _hold(self, node: Node, now: int) -> None:
        if node.leases == 0:
            self.evictable -= node.n_pages
        node.leases += 1
        node.last_used = now
        node.hits += 1

    def _extend(self, lease: Lease, tokens: Ints, pages: Ints) -> tuple[Ints, Ints]:
        size, now = self.page_size, next(self._clock)
        kept: list[Ints] = []
        surplus: list[Ints] = []
        node = lease.node
        assert node is not None
        while len(tokens):
            child = node.children.get(first_page(tokens, size))
            if child is None:
                child = self._add(node, tokens, pages)
                n = len(tokens)
            else:
                n = common_prefix(child.tokens, tokens) // size * size
                if n < child.length:
                    child = self._split(child, n)
                surplus.append(pages[: n // size])
            self._hold(child, now)
            kept.append(child.pages)
            node, tokens, pages = child, tokens[n:], pages[n // size :]
        lease.node = node
        return (
            np.concatenate(kept) if kept else _NO_PAGES,
            np.concatenate(surplus) if surplus else _NO_PAGES,
        )

    def _add(self, parent: Node, tokens: Ints, pages: Ints) -> Node:
        key = first_page(tokens, self.page_size)
        child = Node(parent, parent.end, tokens.copy(), pages.copy(), key)
        parent.children[key] = child
        self.total += len(pages)
        self.evictable += len(pages)
        return child

    def _settle(self, node: Node) -> None:
        """Queues a node for eviction if it has become an unleased leaf; an empty root goes."""
        if node.leases or node.children:
            return
        if node.parent is None:
            del self._roots[self._names.pop(node)]
            return
        node.ticket = next(self._tickets)
        heapq.heappush(self._heap, (*self._policy.rank(node), node.ticket, node))
        if len(self._heap) > 64 + 4 * self.total:
            self._heap = [entry for entry in self._heap if _is_current(entry)]
            heapq.heapify(self._heap)

    def _remove(self, node: Node) -> None:
        node.alive = False
        parent = node.parent
        assert parent is not None, "roots are not evicted"
        del parent.children[node.key]
        self._settle(parent)

    def pages_of(self, lease: Lease) -> Ints:
        """The pages on a lease's path, first position first."""
        assert lease.node is not None, "the lease has been released"
        found = [node.pages for node in _path(lease.node)]
        return np.concatenate(found[::-1])

    def audit(self, leases: Sequence[Lease]) -> None:
        """Raises ``AssertionError`` unless counts, keys and links agree with these live leases."""
        passing: dict[Node, int] = {}
        for lease in leases:
            assert lease.node is not None
            for node in _path(lease.node):
                passing[node] = passing.get(node, 0) + 1
        total = evictable = 0
        for namespace, node in self.nodes():
            assert node.parent is not None
            assert node.parent.children[node.key] is node, "a child hangs under another key"
            assert node.key == first_page(node.tokens, self.page_size)
            assert node.start == node.parent.end, f"a gap in namespace {namespace!r}"
            assert node.length == node.n_pages * self.page_size > 0
            assert node.leases == passing.get(node, 0), "a node's leases are miscounted"
            total += node.n_pages
            evictable += 0 if node.leases else node.n_pages
        assert (self.total, self.evictable) == (total, evictable), "page counts are off"

    def nodes(self) -> Iterator[tuple[bytes, Node]]:
        """Every node but the roots, with its namespace: for audits."""
        for namespace, root in self._roots.items():
            stack = list(root.children.values())
            while stack:
                node = stack.pop()
                stack.extend(node.children.values())
                yield namespace, node


def shared_runs(leases: Sequence[Lease], shortest: int = 1) -> list[SharedRun]:
    """Which positions two or more leases have in common, from their paths.

    Nodes that follow each other with the same leases are one run; runs shorter than ``shortest``
    tokens are left out. Costs by the nodes on the paths, however many others hang from them.
    """
    through: dict[Node, list[int]] = {}
    for index, lease in enumerate(leases):
        if lease.node is not None:
            for node in _path(lease.node):
                if node.leases > 1 and node.parent is not None:
                    through.setdefault(node, []).append(index)
    shared = {node: rows for node, rows in through.items() if len(rows) > 1}
    # A node's leases are among its parent's, so as many are the same ones.
    goes_on = {
        above
        for node, rows in shared.items()
        if (above := node.parent) is not None and len(shared.get(above, ())) == len(rows)
    }
    runs = []
    for node, rows in shared.items():
        if node in goes_on:
            continue
        top = node
        while (above := top.parent) is not None and len(shared.get(above, ())) == len(rows):
            top = above
        if node.end - top.start >= shortest:
            runs.append(SharedRun(tuple(rows), top.start, node.end))
    return runs


def _path(node: Node) -> Iterator[Node]:
    """The node and all above it."""
    while True:
        yield node
        if node.parent is None:
            return
        node = node.parent


def _is_current(entry: tuple[Any, ...]) -> bool:
    ticket: int = entry[-2]
    node: Node = entry[-1]
    return node.alive and node.ticket == ticket and not node.leases and not node.children
