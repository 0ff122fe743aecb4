"""Who owns which page, under random use of tiny pools."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from sapwood.radix import RadixTree
from sapwood.srt.memory import Hold, PageAllocator, PrefixCache


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, np.int32)


def cache_of(pages: int, page_size: int = 1) -> PrefixCache:
    return PrefixCache(RadixTree(page_size), PageAllocator(pages))


@dataclass
class Running:
    hold: Hold
    tokens: list[int]
    computed: int


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("seed", range(12))
def test_c045_every_page_has_one_owner(seed: int, page_size: int) -> None:
    """C045, C049: random opens, growth, commits, shrinking, ends and flushes, audited each time."""
    source = random.Random(seed)
    cache = cache_of(source.choice([6, 30, 150]), page_size)
    running: list[Running] = []
    for _ in range(250):
        action = source.random()
        if action < 0.3:
            tokens = [source.randrange(2) for _ in range(source.randrange(1, 80))]
            hold = cache.open(source.choice([b"a", b"b"]), ints(tokens), len(tokens) - 1)
            assert hold.length < len(tokens)
            running.append(Running(hold, tokens, hold.length))
        elif action < 0.75 and running:
            one = source.choice(running)
            stop = min(len(one.tokens), one.computed + source.randrange(1, 40))
            if cache.grow(one.hold, stop):
                cache.audit([each.hold for each in running])
                if source.random() < 0.2:  # the step came to nothing
                    cache.shrink(one.hold, one.computed)
                    continue
                one.computed = stop
                cache.commit(one.hold, ints(one.tokens), stop)
                assert one.hold.length == stop // page_size * page_size
                if stop == len(one.tokens):
                    one.tokens.append(source.randrange(2))
        elif action < 0.95 and running:
            cache.close(running.pop(source.randrange(len(running))).hold)
        else:
            cache.flush()
            assert cache.n_evictable == 0
        cache.audit([each.hold for each in running])
        assert cache.n_free + cache.n_evictable + cache.n_used == cache.n_total
    for each in running:
        cache.close(each.hold)
    cache.flush()
    assert cache.n_free == cache.n_total


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33])
def test_c047_the_last_token_is_never_matched(length: int, page_size: int) -> None:
    """C047"""
    cache = cache_of(64, page_size)
    tokens = ints(list(range(length)))
    first = cache.open(b"", tokens, length - 1)
    assert cache.grow(first, length)
    cache.commit(first, tokens, length)
    again = cache.open(b"", tokens, length - 1)
    assert again.length == (length - 1) // page_size * page_size
    cache.audit([first, again])


def test_growing_takes_from_the_tree_only_what_nobody_holds() -> None:
    cache = cache_of(10)
    old = cache.open(b"", ints([1, 2, 3, 4]), 4)
    assert cache.grow(old, 4)
    cache.commit(old, ints([1, 2, 3, 4]), 4)
    new = cache.open(b"", ints([9] * 9), 9)
    assert not cache.grow(new, 9)
    assert (cache.n_free, new.n_pages) == (6, 0)
    cache.close(old)
    assert cache.grow(new, 9)
    assert (cache.n_free, cache.n_evictable, cache.evicted) == (0, 1, 3)


def test_who_comes_second_gets_the_pages_of_who_was_first() -> None:
    cache = cache_of(20)
    tokens = ints([5, 6, 7])
    first, second = (cache.open(b"", tokens, 3) for _ in range(2))
    for hold in (first, second):
        assert cache.grow(hold, 3)
    cache.commit(first, tokens, 3)
    cache.commit(second, tokens, 3)
    assert second.pages.tolist() == first.pages.tolist()
    assert cache.n_used == 3
    cache.audit([first, second])


def test_c056_a_flush_keeps_what_is_held() -> None:
    """C056"""
    cache = cache_of(20)
    hold = cache.open(b"", ints([1, 2, 3]), 3)
    assert cache.grow(hold, 3)
    cache.commit(hold, ints([1, 2, 3]), 2)
    assert cache.flush() == 0
    cache.audit([hold])
    cache.close(hold)
    assert cache.flush() == 2
    assert cache.n_free == 20


def test_an_audit_finds_a_page_with_two_owners() -> None:
    cache = cache_of(8)
    hold = cache.open(b"", ints([1, 2]), 2)
    assert cache.grow(hold, 2)
    hold.pages[0] = hold.pages[1]
    with pytest.raises(AssertionError, match="no owner, or two"):
        cache.audit([hold])


def test_an_audit_finds_a_page_freed_twice() -> None:
    allocator = PageAllocator(4)
    cache = PrefixCache(RadixTree(), allocator)
    page = allocator.allocate(2)[:1]
    allocator.free(page)
    allocator.free(page)
    with pytest.raises(AssertionError, match="no owner, or two"):
        cache.audit([])


def test_an_audit_finds_a_page_that_nobody_owns() -> None:
    cache = cache_of(8)
    hold = cache.open(b"", ints([1, 2]), 2)
    assert cache.grow(hold, 2)
    with pytest.raises(AssertionError, match="no owner, or two"):
        cache.audit([])


def test_namespaces_share_no_page() -> None:
    cache = cache_of(20)
    holds = [cache.open(space, ints([1, 2, 3]), 3) for space in (b"a", b"b")]
    for hold in holds:
        assert cache.grow(hold, 3)
        cache.commit(hold, ints([1, 2, 3]), 3)
    assert not set(holds[0].pages.tolist()) & set(holds[1].pages.tolist())
    assert cache.groups(holds, 1) == []
    assert cache.cached_length(b"c", ints([1, 2, 3]), 3) == 0
    cache.audit(holds)


def test_whoever_asks_sees_each_page_as_it_is_given_back() -> None:
    seen: list[list[int]] = []
    cache = PrefixCache(
        RadixTree(4), PageAllocator(8, on_free=lambda pages: seen.append(pages.tolist()))
    )
    tokens = ints(list(range(12)))
    first, second = (cache.open(b"", tokens, 12) for _ in range(2))
    for hold in (first, second):
        assert cache.grow(hold, 12)
    cache.commit(first, tokens, 8)
    cache.commit(second, tokens, 8)
    assert seen == [[3, 4]]  # the second came too late with them
    cache.shrink(first, 8)
    assert seen[1:] == [[2]]
    cache.close(second)
    assert seen[2:] == [[5]]
    cache.close(first)
    cache.flush()
    assert sorted(page for pages in seen for page in pages) == [0, 1, 2, 3, 4, 5]
