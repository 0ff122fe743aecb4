"""Attention of some queries to one tile of keys and values, compiled: the inner part of ``paged``.

Scores are in units of log2, so that the exponential is a plain power of two. The running softmax
over tiles is that of FlashAttention (Dao et al. 2022). Queries are taken 4 or 3 at a time against 4
keys at a time, with all sums in registers.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# numba infers the types of kernels' arguments.
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32

from .blocks import add_mixed, mix_step, score_step, store_scores, zeros
from .compiled import piece
from .emit import LANES, PAIR
from .simd import (
    add,
    broadcast,
    exp2,
    keep_first,
    largest,
    load,
    load_pair,
    load_pair_part,
    max_lanes,
    store,
    sum_lanes,
)
from .words import advance, peek, poke, prefetch, word64

TILE = 64
"""Keys of a tile."""

SPARE = 2
"""Rows that follow a KV head's in a thread's space, for blocks with more rows than are left."""

LOWEST = np.float32(-np.inf)


class Keys(NamedTuple):
    """A tile: where its keys and values are.

    ``offsets`` is the address of the int64 distances (in elements) of ``width`` tokens from ``k``
    and ``v``, pointers into the pool at one KV head; ``ahead`` that of the ``coming`` tokens of the
    next tile, which are prefetched: slots are scattered, which processors cannot foresee.
    """

    k: Any
    v: Any
    offsets: Any
    width: Any
    ahead: Any
    coming: Any
    head_dim: Any


class Rows(NamedTuple):
    """One KV head's rows (a query token's head each), as pointers to float32.

    ``q`` and the unnormalised ``out`` have ``pad`` numbers a row, ``highs`` and ``totals`` (running
    maximum and sum) one. ``scores`` and ``scales`` are scratch of a block.
    """

    q: Any
    out: Any
    highs: Any
    totals: Any
    scores: Any
    scales: Any
    pad: Any


@piece
def _score(like, q, pad, keys, coming, scores):
    """Products of some queries with a tile's keys -> scores[query * TILE + key]."""
    last = keys.width - 1
    for t in range(0, keys.width, 4):
        k0 = advance(keys.k, word64(keys.offsets, t))
        k1 = advance(keys.k, word64(keys.offsets, min(t + 1, last)))
        k2 = advance(keys.k, word64(keys.offsets, min(t + 2, last)))
        k3 = advance(keys.k, word64(keys.offsets, min(t + 3, last)))
        for i in range(t, min(t + 4, coming)):
            for d in range(0, keys.head_dim, PAIR):
                prefetch(keys.k, word64(keys.ahead, i) + d)
        sums, d = zeros(like), 0
        while d + PAIR <= keys.head_dim:
            p0, p1, p2, p3 = load_pair(k0, d), load_pair(k1, d), load_pair(k2, d), load_pair(k3, d)
            sums = score_step(sums, advance(q, d), pad, p0, p1, p2, p3)
            d += PAIR
        if d < keys.head_dim:
            rest = keys.head_dim - d
            p0, p1 = load_pair_part(k0, d, rest), load_pair_part(k1, d, rest)
            p2, p3 = load_pair_part(k2, d, rest), load_pair_part(k3, d, rest)
            sums = score_step(sums, advance(q, d), pad, p0, p1, p2, p3)
        store_scores(sums, advance(scores, t), TILE)


@piece
def _mix(like, weights, keys, coming, out, pad, scales):
    """``out = out * scale + weights @ values`` for some queries, over a tile."""
    for t in range(coming):
        for d in range(0, keys.head_dim, PAIR):
            prefetch(keys.v, word64(keys.ahead, t) + d)
    d = 0
    while d + PAIR <= keys.head_dim:
        sums = zeros(like)
        for t in range(keys.width):
            value = load_pair(keys.v, word64(keys.offsets, t) + d)
            sums = mix_step(sums, advance(weights, t), TILE, value)
        add_mixed(sums, advance(out, d), pad, scales)
        d += PAIR
    if d < keys.head_dim:
        sums = zeros(like)
        for t in range(keys.width):
            value = load_pair_part(keys.v, word64(keys.offsets, t) + d, keys.head_dim - d)
            sums = mix_step(sums, advance(weights, t), TILE, value)
        add_mixed(sums, advance(out, d), pad, scales)


@piece
def _soften(scores, width, seen, highs, totals, scale):
    """One query's scores of a tile -> weights; updates its maximum and sum; notes the old's scale.

    Keys from ``seen`` on are masked, and so is the rest of the tile's last vector.
    """
    high = broadcast(LOWEST)
    for t in range(0, width, LANES):
        high = largest(high, keep_first(load(scores, t), seen - t))
    before = peek(highs, 0)
    now = max(before, max_lanes(high))
    base = now if now > LOWEST else float32(0.0)  # nothing seen yet: weights of 0 rather than NaN
    total, minus = broadcast(float32(0.0)), broadcast(-base)
    for t in range(0, width, LANES):
        weight = exp2(add(keep_first(load(scores, t), seen - t), minus))
        store(scores, t, weight)
        total = add(total, weight)
    shrink = max_lanes(exp2(broadcast(before - base)))
    poke(highs, 0, now)
    poke(totals, 0, peek(totals, 0) * shrink + sum_lanes(total))
    poke(scale, 0, shrink)


@piece
def _block(score_like, mix_like, n, rows, row, keys, coming, group, visible):
    """n rows from ``row`` on against one tile; the first query sees ``visible`` of its keys."""
    if visible + (row + n - 1) // group <= 0:
        return  # the tile comes after all of them
    q, out = advance(rows.q, row * rows.pad), advance(rows.out, row * rows.pad)
    _score(score_like, q, rows.pad, keys, coming, rows.scores)
    for i in range(n):
        seen = min(keys.width, visible + (row + i) // group)
        highs, totals = advance(rows.highs, row + i), advance(rows.totals, row + i)
        scores, scale = advance(rows.scores, i * TILE), advance(rows.scales, i)
        _soften(scores, keys.width, seen, highs, totals, scale)
    _mix(mix_like, rows.scores, keys, coming, out, rows.pad, rows.scales)


@piece
def attend_tile(rows, n_rows, keys, group, visible):
    """All rows of one KV head against one tile, 4 or 3 at a time (the last 3 may be fewer).

    ``group`` query heads share the KV head; row r belongs to query ``r // group``, which sees
    ``visible + r // group`` of the tile's keys. The first block prefetches the next tile.
    """
    row, coming = 0, keys.coming
    while n_rows - row >= 4 and n_rows - row != 6:
        _block((0,) * 16, (0,) * 8, 4, rows, row, keys, coming, group, visible)
        row, coming = row + 4, 0
    while row < n_rows:
        _block((0,) * 12, (0,) * 6, 3, rows, row, keys, coming, group, visible)
        row, coming = row + 3, 0
