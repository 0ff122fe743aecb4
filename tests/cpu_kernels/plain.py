"""A plain attention to compare with: one row and one head at a time, in float64."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from sapwood.srt.attention.work import slots_of
from sapwood.srt.batch import Batch, Group, Row
from sapwood.srt.memory.pool import KVPool
from sapwood.srt.request import Request


def make_pool(
    n_pages: int, page_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> KVPool:
    """One layer's KV, full of noise."""
    pool = KVPool(n_pages, page_size, 1, kv_heads, head_dim, dtype)
    pool.k(0).normal_()
    pool.v(0).normal_()
    return pool


class Shared(NamedTuple):
    """Rows (by index) that have their first ``length`` positions in common."""

    rows: tuple[int, ...]
    start: int
    stop: int


def make_batch(
    spans: list[tuple[int, int]], page_size: int, n_pages: int, groups: list[Shared], seed: int = 0
) -> Batch:
    """Rows (start, stop) with scattered pages; those of a group share its range's pages."""
    free = list(np.random.RandomState(seed).permutation(n_pages))
    tables = [
        np.array([free.pop() for _ in range(-(-stop // page_size))], np.int32) for _, stop in spans
    ]
    for shared in groups:
        assert shared.start % page_size == shared.stop % page_size == 0
        pages = slice(shared.start // page_size, shared.stop // page_size)
        for index in shared.rows:
            tables[index][pages] = tables[shared.rows[0]][pages]
    rows = tuple(
        Row(cast(Request, None), start, stop, stop - 1, stop, stop, pages)
        for (start, stop), pages in zip(spans, tables, strict=True)
    )
    return Batch(0, rows, tuple(Group(*shared) for shared in groups))


def store(batch: Batch, pool: KVPool, page_size: int, k_TKD: Tensor, v_TKD: Tensor) -> None:
    """Puts new keys and values in their slots."""
    slots = np.concatenate([slots_of(r.pages, page_size, r.start, r.stop) for r in batch.rows])
    pool.k(0)[slots] = k_TKD
    pool.v(0)[slots] = v_TKD


def attend(batch: Batch, pool: KVPool, page_size: int, q_THD: Tensor) -> Tensor:
    """Causal attention over what the pool holds."""
    out = torch.empty(q_THD.shape, dtype=torch.float64)
    first = 0
    for row in batch.rows:
        n = row.stop - row.start
        slots = slots_of(row.pages, page_size, 0, row.stop)
        group = q_THD.shape[1] // pool.k(0).shape[1]
        k = pool.k(0)[slots].double().repeat_interleave(group, 1)
        v = pool.v(0)[slots].double().repeat_interleave(group, 1)
        scores = torch.einsum("nhd,khd->hnk", q_THD[first : first + n].double(), k)
        scores /= q_THD.shape[2] ** 0.5
        later = torch.arange(row.stop) > torch.arange(row.start, row.stop)[:, None]
        weights = scores.masked_fill(later, -torch.inf).softmax(-1)
        out[first : first + n] = torch.einsum("hnk,khd->nhd", weights, v)
        first += n
    return out
