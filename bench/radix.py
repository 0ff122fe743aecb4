"""What the tree costs, and that it does not grow with the tree: ``python -m bench.radix``.

Prompts of 1,500 tokens of which 1,400 are one of 50 headers (as many agents' headers would be), in
trees of 1,000 and of 100,000 nodes. Microseconds, medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from sapwood.radix import Lease, RadixTree, shared_runs

HEADER, TAIL, HEADERS = 1400, 100, 50
ROWS = 64


class Filled:
    """A tree of so many nodes: headers, and tails that hang from them."""

    def __init__(self, nodes: int) -> None:
        self._source = np.random.default_rng(0)
        self.tree = RadixTree()
        self._page = 0
        self._headers = [self._ids(HEADER) for _ in range(HEADERS)]
        for i in range(nodes - HEADERS):
            self.tree.release(self.put(np.concatenate([self._headers[i % HEADERS], self._ids(20)])))

    def prompt(self) -> np.ndarray:
        """A header that is in the tree, and a tail that is not."""
        which = int(self._source.integers(HEADERS))
        return np.concatenate([self._headers[which], self._ids(TAIL)])

    def put(self, tokens: np.ndarray) -> Lease:
        """Leases the prompt, its new part inserted."""
        lease = self.tree.lease(b"", tokens)
        new = len(tokens) - lease.length
        pages = np.arange(self._page, self._page + new, dtype=np.int32)
        self._page += new
        self.tree.extend(lease, tokens[lease.length :], pages)
        return lease

    def _ids(self, n: int) -> np.ndarray:
        return self._source.integers(0, 49152, n).astype(np.int32)


def median(work: Callable[[], object], repeat: int = 300) -> float:
    """Microseconds of one call."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def row(nodes: int) -> str:
    """One line of the table."""
    filled = Filled(nodes)
    tree = filled.tree
    prompts = iter([filled.prompt() for _ in range(700)])
    match = median(lambda: tree.match(b"", next(prompts)))
    leases: list[Lease] = []
    insert = median(lambda: leases.append(filled.put(next(prompts))))
    groups = median(lambda: shared_runs(leases[:ROWS], 64))
    one = np.array([7], np.int32)
    grow = median(lambda: tree.extend(leases[0], one, one), 3000)
    for lease in leases:
        tree.release(lease)
    evict = {n: median(lambda n=n: tree.evict(n), 50) for n in (1, 100)}  # type: ignore[misc]
    cells = [match, insert, grow, groups, evict[1], evict[100]]
    return " | ".join([f"| {nodes:,}", *(f"{value:.1f}" for value in cells)]) + " |"


def main() -> None:
    """Prints the table."""
    print(
        f"| nodes | match | lease + insert | grow by a token | groups of {ROWS} rows "
        "| evict 1 page | evict 100 |"
    )
    print("|---|---|---|---|---|---|---|")
    for nodes in (1_000, 10_000, 100_000):
        print(row(nodes), flush=True)


if __name__ == "__main__":
    main()
