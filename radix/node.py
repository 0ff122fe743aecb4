"""One node of the tree: a run of tokens and the pages that hold their KV."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Key = int | bytes
"""The first page of a node's tokens: what tells it from its siblings."""


class Node:
    """``length`` tokens from absolute position ``start``, in ``length / page_size`` pages.

    ``leases`` counts the leases whose path passes through or ends here, so that a node with none
    has only children with none. ``priority`` and ``pinned_until`` are an ``EvictionPolicy``'s. The
    arrays may be longer than what is in use.
    """

    __slots__ = (
        "_pages",
        "_tokens",
        "alive",
        "children",
        "hits",
        "key",
        "last_used",
        "leases",
        "length",
        "n_pages",
        "parent",
        "pinned_until",
        "priority",
        "start",
        "ticket",
    )

    def __init__(
        self, parent: Node | None, start: int, tokens: Ints, pages: Ints, key: Key
    ) -> None:
        self.parent = parent
        self.key = key
        self.start = start
        self._tokens = tokens
        self._pages = pages
        self.length = len(tokens)
        self.n_pages = len(pages)
        self.children: dict[Key, Node] = {}
        self.leases = 0
        self.last_used = 0
        self.hits = 0
        self.priority = 0
        self.pinned_until = 0
        self.ticket = 0
        self.alive = True

    @property
    def tokens(self) -> Ints:
        """int32[length]; a view."""
        return self._tokens[: self.length]

    @property
    def pages(self) -> Ints:
        """int32[n_pages]; a view."""
        return self._pages[: self.n_pages]

    @property
    def end(self) -> int:
        """Absolute position after the node's last token."""
        return self.start + self.length

    def append(self, tokens: Ints, pages: Ints) -> None:
        """Grows at the end; amortised constant cost a token."""
        self._tokens = _with_room(self._tokens, self.length, len(tokens))
        self._pages = _with_room(self._pages, self.n_pages, len(pages))
        self._tokens[self.length : self.length + len(tokens)] = tokens
        self._pages[self.n_pages : self.n_pages + len(pages)] = pages
        self.length += len(tokens)
        self.n_pages += len(pages)

    def split(self, at: int, page_size: int) -> Node:
        """Puts the first ``at`` tokens into a new parent, which every lease passes through.

        The caller hangs the result where this node hung.
        """
        page = at // page_size
        upper = Node(self.parent, self.start, self.tokens[:at], self.pages[:page], self.key)
        upper.leases = self.leases
        upper.last_used = self.last_used
        upper.hits = self.hits
        upper.priority, upper.pinned_until = self.priority, self.pinned_until
        self._tokens, self._pages = self.tokens[at:], self.pages[page:]
        self.length -= at
        self.n_pages -= page
        self.start += at
        self.parent = upper
        self.key = first_page(self.tokens, page_size)
        upper.children[self.key] = self
        return upper

    def cut(self, n_pages: int, page_size: int) -> Ints:
        """Takes the last ``n_pages`` off."""
        self.n_pages -= n_pages
        self.length -= n_pages * page_size
        return self._pages[self.n_pages : self.n_pages + n_pages].copy()


def first_page(tokens: Ints, page_size: int) -> Key:
    """The key of a run of at least one page."""
    if page_size == 1:
        return int(tokens[0])
    return tokens[:page_size].tobytes()


def common_prefix(a: Ints, b: Ints) -> int:
    """Number of equal tokens at the start of two arrays."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    first = int(differ.argmax()) if n else 0
    return first if n and differ[first] else n


def _with_room(array: Ints, used: int, more: int) -> Ints:
    if used + more <= len(array) and array.base is None:
        return array
    grown = np.empty(max(16, 2 * used, used + more), np.int32)
    grown[:used] = array[:used]
    return grown
