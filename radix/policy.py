"""In which order unleased leaves are given up."""

from __future__ import annotations

from typing import Protocol

from .node import Node


class EvictionPolicy(Protocol):
    """Leaves with the least rank go first. Times are the tree's own counter of uses."""

    def rank(self, node: Node) -> tuple[int, ...]:
        """Called when a node becomes an unleased leaf."""
        ...


class LeastRecentlyUsed:
    """Longest unused first."""

    def rank(self, node: Node) -> tuple[int, ...]:
        """By the last use."""
        return (node.last_used,)


class LeastFrequentlyUsed:
    """Fewest leases taken first; among equals, longest unused."""

    def rank(self, node: Node) -> tuple[int, ...]:
        """By the number of uses, then the last one."""
        return (node.hits, node.last_used)
