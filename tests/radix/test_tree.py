"""The tree against a plain dictionary of what was put in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sapwood.radix import (
    EvictionPolicy,
    Lease,
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
    LowestPriority,
    RadixTree,
    SharedRun,
    shared_runs,
)

Path = tuple[bytes, tuple[int, ...]]


def ints(values: Any) -> np.ndarray:
    return np.array(list(values), np.int32)


class Model(RuleBasedStateMachine):
    """Leases and evicts at random; a dictionary of whole-page prefixes says what must be found."""

    @initialize(
        page_size=st.sampled_from([1, 4, 16]),
        policy=st.sampled_from([LeastRecentlyUsed(), LeastFrequentlyUsed(), LowestPriority()]),
    )
    def start(self, page_size: int, policy: EvictionPolicy) -> None:
        self.size = page_size
        self.tree = RadixTree(page_size, policy)
        self.pages: dict[Path, int] = {}  # (namespace, tokens up to a page's end) -> page
        self.leases: list[tuple[Lease, bytes, tuple[int, ...]]] = []
        self.next_page = 0

    def _cached(self, space: bytes, tokens: tuple[int, ...]) -> list[int]:
        found = []
        for end in range(self.size, len(tokens) + 1, self.size):
            page = self.pages.get((space, tokens[:end]))
            if page is None:
                break
            found.append(page)
        return found

    @rule(
        space=st.sampled_from([b"a", b"b"]),
        tokens=st.lists(st.integers(0, 1), max_size=70).map(tuple),
    )
    def lease(self, space: bytes, tokens: tuple[int, ...]) -> None:
        want = self._cached(space, tokens)
        match = self.tree.match(space, ints(tokens))
        assert match.pages.tolist() == want
        assert match.length == len(want) * self.size
        lease = self.tree.lease(space, ints(tokens))
        assert lease.length == match.length
        assert self.tree.pages_of(lease).tolist() == want
        self.leases.append((lease, space, tokens[: match.length]))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), n=st.integers(1, 4))
    def extend(self, data: st.DataObject, n: int) -> None:
        index = data.draw(st.integers(0, len(self.leases) - 1))
        lease, space, held = self.leases[index]
        count = n * self.size
        more = tuple(data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
        own = ints(range(self.next_page, self.next_page + n))
        self.next_page += n
        kept, surplus = self.tree.extend(lease, ints(more), own)
        whole, want = held + more, []
        for i in range(n):
            key = (space, whole[: len(held) + (i + 1) * self.size])
            want.append(self.pages.setdefault(key, int(own[i])))
        assert kept.tolist() == want
        assert sorted(surplus.tolist()) == sorted(set(own.tolist()) - set(want))
        self.leases[index] = (lease, space, whole)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), priority=st.integers(-1, 2), uses=st.sampled_from([0, 3, 1000]))
    def favour(self, data: st.DataObject, priority: int, uses: int) -> None:
        lease, _, _ = data.draw(st.sampled_from(self.leases))
        self.tree.favour(lease, priority=priority, uses=uses)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease, _, _ = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        self.tree.release(lease)

    @rule(n=st.integers(1, 20))
    def evict(self, n: int) -> None:
        expected = min(n, self.tree.evictable)
        gone = set(self.tree.evict(n).tolist())
        assert len(gone) == expected
        self.pages = {key: page for key, page in self.pages.items() if page not in gone}
        for _, space, tokens in self.leases:  # nothing that is leased has gone
            assert len(self._cached(space, tokens)) * self.size == len(tokens)

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "tree"):
            self.tree.audit([lease for lease, _, _ in self.leases])
            assert self.tree.total == len(self.pages)
            held = {
                (space, tokens[:end])
                for _, space, tokens in self.leases
                for end in range(self.size, len(tokens) + 1, self.size)
            }
            assert self.tree.held == len(held)

    @invariant()
    def runs(self) -> None:
        if hasattr(self, "tree"):
            tables = [self.tree.pages_of(lease).tolist() for lease, _, _ in self.leases]
            found = shared_runs([lease for lease, _, _ in self.leases])
            assert sorted(found) == sorted(runs_of(tables, self.size))


def runs_of(tables: list[list[int]], page_size: int) -> list[SharedRun]:
    """The plain way: who has each page, then neighbours with the same owners joined."""
    owners: dict[tuple[int, int], list[int]] = {}  # (place, page) -> rows
    for row, pages in enumerate(tables):
        for place, page in enumerate(pages):
            owners.setdefault((place, page), []).append(row)
    places: dict[tuple[int, ...], list[int]] = {}  # the same rows share neighbouring places only
    for (place, _), rows in owners.items():
        if len(rows) > 1:
            places.setdefault(tuple(rows), []).append(place)
    return [
        SharedRun(rows, min(at) * page_size, (max(at) + 1) * page_size)
        for rows, at in places.items()
    ]


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def filled(tree: RadixTree, tokens: Any, first_page: int = 0, space: bytes = b"") -> Lease:
    """A lease on ``tokens``, put into the tree."""
    tokens = ints(tokens)
    lease = tree.lease(space, tokens)
    more = tokens[lease.length :]
    tree.extend(lease, more, ints(range(first_page, first_page + len(more) // tree.page_size)))
    return lease


def test_c050_a_partial_match_holds_what_it_matched_and_no_more() -> None:
    """C050"""
    tree = RadixTree()
    tree.release(filled(tree, range(1, 11)))
    held = tree.lease(b"", ints(range(1, 7)))
    assert (held.length, tree.held, tree.evictable) == (6, 6, 4)
    tree.release(filled(tree, [*range(1, 7), 20, 21], 10))
    assert len(tree.evict(100)) == 6  # 7..10, 20 and 21
    assert tree.match(b"", ints(range(1, 11))).length == 6
    tree.release(held)
    assert len(tree.evict(100)) == 6
    assert (tree.total, tree.evictable, tree.held) == (0, 0, 0)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_c050_three_holders_let_go_in_any_order(order: tuple[int, ...]) -> None:
    """C050"""
    tree = RadixTree()
    leases = [filled(tree, range(n), 100 * i) for i, n in enumerate((4, 8, 6))]
    for n, index in enumerate(order):
        tree.audit([leases[i] for i in order[n:]])
        tree.release(leases[index])
    assert tree.evictable == tree.total == 8


@pytest.mark.parametrize(
    ("length", "cached"), [(1, 0), (15, 0), (16, 16), (17, 16), (31, 16), (32, 32)]
)
def test_c049_whole_pages_match(length: int, cached: int) -> None:
    """C049"""
    tree = RadixTree(16)
    tree.release(filled(tree, range(32)))
    assert tree.match(b"", ints(range(length))).length == cached


@pytest.mark.parametrize(("differs_at", "cached"), [(16, 16), (17, 16), (8, 0), (15, 0)])
def test_c049_a_difference_inside_a_page_ends_the_match_before_it(
    differs_at: int, cached: int
) -> None:
    """C049"""
    tree = RadixTree(16)
    tree.release(filled(tree, range(32)))
    tokens = list(range(32))
    tokens[differs_at] = 999
    lease = filled(tree, tokens, 10)
    assert tree.match(b"", ints(tokens)).length == 32
    assert tree.total == 2 + (32 - cached) // 16
    tree.release(lease)
    tree.audit([])


def test_namespaces_share_nothing() -> None:
    tree = RadixTree()
    filled(tree, range(8), space=b"a")
    assert tree.match(b"b", ints(range(8))).length == 0
    assert tree.match(b"a", ints(range(8))).length == 8


def test_a_match_changes_nothing() -> None:
    tree = RadixTree()
    tree.release(filled(tree, range(8)))
    before = [(node.start, node.length, node.last_used) for _, node in tree.nodes()]
    tree.match(b"", ints([0, 1, 2, 99]))
    assert [(node.start, node.length, node.last_used) for _, node in tree.nodes()] == before


def test_the_longest_unused_goes_first() -> None:
    tree = RadixTree()
    for i in range(3):
        tree.release(filled(tree, [i, i, i], 10 * i))
    tree.release(tree.lease(b"", ints([0, 0, 0])))
    assert tree.evict(3).tolist() == [10, 11, 12]


def test_a_use_lasts_until_the_release() -> None:
    tree = RadixTree()
    long = filled(tree, [1, 1, 1])
    tree.release(filled(tree, [2, 2, 2], 10))  # began later, ended earlier
    tree.release(long)
    assert tree.evict(3).tolist() == [10, 11, 12]


def test_only_the_end_of_a_leaf_goes_where_that_is_enough() -> None:
    tree = RadixTree(4)
    tree.release(filled(tree, range(16)))
    assert tree.evict(1).tolist() == [3]
    assert tree.match(b"", ints(range(16))).length == 12
    again = filled(tree, range(16), 10)  # and what is missing can be put back
    assert tree.pages_of(again).tolist() == [0, 1, 2, 10]
    tree.audit([again])


@pytest.mark.parametrize("policy", [LeastRecentlyUsed(), LowestPriority()])
def test_a_pin_runs_out(policy: EvictionPolicy) -> None:
    tree = RadixTree(policy=policy)

    def put(start: int) -> None:
        tree.release(filled(tree, [start], start))

    pinned = filled(tree, [0], 0)
    tree.favour(pinned, uses=9)
    tree.release(pinned)
    put(1)  # three uses: leased, extended, released
    put(2)
    assert tree.evict(1).tolist() == [1]
    put(3)
    put(4)  # after the pin
    assert tree.evict(2).tolist() == [2, 0]
    assert tree.evict(9).tolist() == [3, 4]


def test_a_pin_keeps_nothing_from_whoever_needs_all() -> None:
    tree = RadixTree()
    pinned = filled(tree, range(4))
    tree.favour(pinned, uses=1000)
    tree.release(pinned)
    assert tree.evictable == 4
    assert len(tree.evict(4)) == 4


def test_low_priority_goes_first_where_that_is_the_policy() -> None:
    tree = RadixTree(policy=LowestPriority())
    for i, priority in enumerate((2, 0, 1, 0)):
        lease = filled(tree, [i], i)
        tree.favour(lease, priority=priority)
        tree.favour(lease, priority=-1)  # does not lower it
        tree.release(lease)
    assert tree.evict(4).tolist() == [1, 3, 2, 0]


def test_both_halves_of_a_split_keep_their_favour() -> None:
    tree = RadixTree(policy=LowestPriority())
    lease = filled(tree, [1, 1, 1, 1])
    tree.favour(lease, priority=1)
    tree.release(lease)
    tree.release(tree.lease(b"", ints([1, 1])))  # splits
    tree.release(filled(tree, [2], 20))
    assert tree.evict(3).tolist() == [20, 2, 3]
    tree.release(filled(tree, [3], 30))  # used last, but not favoured
    assert tree.evict(9).tolist() == [30, 0, 1]


def test_the_least_used_goes_first_where_that_is_the_policy() -> None:
    tree = RadixTree(policy=LeastFrequentlyUsed())
    for i in range(3):
        tree.release(filled(tree, [i, i, i], 10 * i))
    for i in (0, 0, 1):
        tree.release(tree.lease(b"", ints([i, i, i])))
    assert tree.evict(3).tolist() == [20, 21, 22]
    assert tree.evict(3).tolist() == [10, 11, 12]


def test_shared_runs_join_nodes_with_the_same_leases() -> None:
    tree = RadixTree()
    first = filled(tree, range(10))
    second = filled(tree, [*range(10), 50, 51], 20)
    third = filled(tree, [*range(4), 90], 40)
    runs = shared_runs([first, second, third])
    assert sorted((run.indices, run.start, run.stop) for run in runs) == [
        ((0, 1), 4, 10),
        ((0, 1, 2), 0, 4),
    ]
    assert [run.indices for run in shared_runs([first, second, third], 5)] == [(0, 1)]
    tree.release(tree.lease(b"", ints(range(7))))  # a split in the middle of a run changes nothing
    assert sorted(shared_runs([first, second, third])) == sorted(runs)


def test_evicting_leaves_parents_that_are_still_in_use() -> None:
    tree = RadixTree()
    parent = filled(tree, range(5))
    tree.release(filled(tree, [*range(5), 7, 8], 10))
    assert sorted(tree.evict(9).tolist()) == [10, 11]
    assert tree.match(b"", ints([*range(5), 7, 8])).length == 5
    tree.release(parent)
    assert len(tree.evict(9)) == 5
