"""Where KV lives, and that freed pages can be spoiled."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sapwood.radix import RadixTree
from sapwood.srt.memory import PageAllocator, PrefixCache
from sapwood.srt.memory.pool import KVPool


@pytest.fixture
def pool() -> KVPool:
    """6 pages of 4 tokens, 2 layers, 3 heads of 8."""
    pool = KVPool(6, 4, 2, 3, 8, torch.float32)
    for layer in range(2):
        pool.k(layer).zero_()
        pool.v(layer).zero_()
    return pool


def spoiled(pool: KVPool) -> list[int]:
    """Slots with NaN in any layer's K or V."""
    both = torch.stack([pool.k(0), pool.v(0), pool.k(1), pool.v(1)])
    return both.isnan().any(dim=(0, 2, 3)).nonzero().flatten().tolist()


def test_layers_share_one_allocation_and_no_element(pool: KVPool) -> None:
    parts = [part for layer in range(2) for part in (pool.k(layer), pool.v(layer))]
    for number, part in enumerate(parts):
        assert part.shape == (24, 3, 8)
        assert part.is_contiguous()
        part.fill_(number)
    assert [part.unique().tolist() for part in parts] == [[0], [1], [2], [3]]
    assert len({part.untyped_storage().data_ptr() for part in parts}) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_takes_as_many_bytes_as_are_said(dtype: torch.dtype) -> None:
    pool = KVPool(6, 4, 2, 3, 8, dtype)
    assert KVPool.token_bytes(2, 3, 8, dtype) * 24 == pool.k(0).untyped_storage().nbytes()


def test_poison_reaches_the_slots_named_and_no_other(pool: KVPool) -> None:
    pool.poison(torch.tensor([1, 7]))
    assert spoiled(pool) == [1, 7]


def test_a_page_is_poisoned_when_it_is_given_back(pool: KVPool) -> None:
    cache = PrefixCache(RadixTree(4), PageAllocator(6, on_free=pool.poison_pages))
    tokens = np.arange(12, dtype=np.int32)
    hold = cache.open(b"", tokens, 11)
    assert cache.grow(hold, 12)
    cache.commit(hold, tokens, 8)
    assert spoiled(pool) == []
    cache.close(hold)  # two pages stay in the tree; the third was its own
    assert spoiled(pool) == [8, 9, 10, 11]
    cache.flush()
    assert spoiled(pool) == list(range(12))
