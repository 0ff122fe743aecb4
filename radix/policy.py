"""In which order unleased leaves are given up."""

from __future__ import annotations

from typing import Protocol

from .node import Node


class EvictionPolicy(Protocol):
    """Leaves with the least rank go first.

    Times are the tree's own counter of uses: a lease taken, favoured, moved to another node, or
    released.

    An order and no more: when nothing of a lower rank is left, the highest goes too, so that what
    the tree counts as evictable can always be had.
    """

    def rank(self, node: Node) -> tuple[int, ...]:
        """Called when a node becomes an unleased leaf."""
        ...


class LeastRecentlyUsed:
    """Longest unused first. Whatever is pinned counts as used when its pin runs out."""

    def rank(self, node: Node) -> tuple[int, ...]:
        """By the last use."""
        return (_last_wanted(node),)


class LeastFrequentlyUsed:
    """Fewest leases taken first; among equals, longest unused."""

    def rank(self, node: Node) -> tuple[int, ...]:
        """By the number of uses, then the last one."""
        return (node.hits, _last_wanted(node))


class LowestPriority:
    """Lowest priority first; among equals, longest unused."""

    def rank(self, node: Node) -> tuple[int, ...]:
        """By priority, then the last use."""
        return (node.priority, _last_wanted(node))


def _last_wanted(node: Node) -> int:
    # A use in the future rather than a second queue: ranks stay the same while time goes on.
    return max(node.last_used, node.pinned_until)
