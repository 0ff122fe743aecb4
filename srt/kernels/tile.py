"""Attention of some queries to one tile of keys and values, compiled: the inner part of ``paged``.

Scores are in units of log2, so that the exponential is a plain power of two. The running softmax
over tiles is that of FlashAttention (Dao et al. 2022). A tile's keys are transposed first, so that
both products are sums over broadcast numbers, with no sums across a vector; queries are taken 4 or
3 at a time, with all sums in registers.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# numba infers the types of kernels' arguments.
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32

from .blocks import (
    add_mixed,
    load_columns,
    load_values,
    load_values_part,
    mix_step,
    settle_weights,
    store_sums,
    transpose_keys,
    zeros,
)
from .compiled import piece
from .emit import LANES, PAIR
from .simd import (
    add,
    broadcast,
    exp2,
    exp2_below,
    fma,
    keep_first,
    largest,
    load,
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
    next tile, which are prefetched: slots are scattered, which processors cannot foresee. Products
    times ``unit`` are scores in units of log2.
    """

    k: Any
    v: Any
    offsets: Any
    width: Any
    ahead: Any
    coming: Any
    head_dim: Any
    unit: Any


class Rows(NamedTuple):
    """One KV head's rows (a query token's head each), as pointers to float32.

    ``q`` and the unnormalised ``out`` have ``pad`` numbers a row, ``highs`` and ``totals`` (running
    maximum and sum) one. ``scores`` and ``scales`` are scratch of a block, ``columns`` of a tile.
    """

    q: Any
    out: Any
    highs: Any
    totals: Any
    scores: Any
    scales: Any
    columns: Any
    pad: Any


@piece
def _transpose(keys, columns):
    """A tile's keys, as columns."""
    last = keys.width - 1
    for t in range(0, keys.width, LANES):
        for i in range(t, min(t + LANES, keys.coming)):
            for d in range(0, keys.head_dim, PAIR):
                prefetch(keys.k, word64(keys.ahead, i) + d)
        d = 0
        while d + PAIR <= keys.head_dim:
            transpose_keys(keys.k, keys.offsets, t, last, d, None, columns, TILE)
            d += PAIR
        if d < keys.head_dim:
            rest = keys.head_dim - d
            transpose_keys(keys.k, keys.offsets, t, last, d, rest, columns, TILE)


@piece
def _score(like, q, pad, keys, columns, scores):
    """Products of some queries with a tile's keys -> scores[query * TILE + key]."""
    sums = zeros(like)
    for d in range(0, pad, 2):
        values = load_columns((0, 0, 0, 0), keys.k, columns, TILE, d)
        sums = mix_step(sums, q, pad, d, values)
    store_sums(sums, (0, 0, 0, 0), scores, TILE)


@piece
def _mix(two, one, weights, keys, coming, out, pad, scales):
    """``out = out * scale + weights @ values`` for some queries, over a tile.

    ``two`` and ``one`` are tuples as long as the vectors of sums of 64 and of 32 elements.
    """
    for t in range(coming):
        for d in range(0, keys.head_dim, PAIR):
            prefetch(keys.v, word64(keys.ahead, t) + d)
    d, last = 0, keys.width - 1
    while d + 2 * PAIR <= keys.head_dim:
        sums = zeros(two)
        for t in range(0, keys.width, 2):
            a, b = word64(keys.offsets, t) + d, word64(keys.offsets, min(t + 1, last)) + d
            values = load_values((0, 0, 0, 0), keys.v, a, b)
            sums = mix_step(sums, weights, TILE, t, values)
        add_mixed(sums, (0, 0, 0, 0), advance(out, d), pad, scales)
        d += 2 * PAIR
    while d < keys.head_dim:
        sums = zeros(one)
        for t in range(0, keys.width, 2):
            a, b = word64(keys.offsets, t) + d, word64(keys.offsets, min(t + 1, last)) + d
            values = load_values_part((0, 0), keys.v, a, b, keys.head_dim - d)
            sums = mix_step(sums, weights, TILE, t, values)
        add_mixed(sums, (0, 0), advance(out, d), pad, scales)
        d += PAIR


@piece
def _soften(unit, pointer, scores, width, seen, highs, totals, scale):
    """One query's scores of a tile -> weights; updates its maximum and sum; notes the old's scale.

    Scores times ``unit`` are in units of log2. Keys from ``seen`` on are masked, and so is the rest
    of the tile's last vector. ``pointer`` is the values'.
    """
    top = -(-width // LANES) * LANES
    if seen < top:
        for t in range(0, top, LANES):
            store(scores, t, keep_first(load(scores, t), seen - t))
    high = broadcast(LOWEST)
    for t in range(0, top, LANES):
        high = largest(high, load(scores, t))
    before = peek(highs, 0)
    now = max(before, max_lanes(high) * unit)
    base = now if now > LOWEST else float32(0.0)  # nothing seen yet: no weights rather than NaN
    total, minus, factor = broadcast(float32(0.0)), broadcast(-base), broadcast(unit)
    for t in range(0, top, LANES):
        weight = exp2_below(fma(load(scores, t), factor, minus))
        total = add(total, settle_weights(pointer, scores, t, weight))
    shrink = float32(1.0)
    if now != before or now == LOWEST:
        shrink = max_lanes(exp2(broadcast(before - base)))
    poke(highs, 0, now)
    poke(totals, 0, peek(totals, 0) * shrink + sum_lanes(total))
    poke(scale, 0, shrink)


@piece
def _block(two, one, n, rows, row, keys, coming, group, visible):
    """n rows from ``row`` on against one tile; the first query sees ``visible`` of its keys."""
    if visible + (row + n - 1) // group <= 0:
        return  # the tile comes after all of them
    q, out = advance(rows.q, row * rows.pad), advance(rows.out, row * rows.pad)
    _score(two, q, rows.pad, keys, rows.columns, rows.scores)
    for i in range(n):
        seen = min(keys.width, visible + (row + i) // group)
        highs, totals = advance(rows.highs, row + i), advance(rows.totals, row + i)
        scores, scale = advance(rows.scores, i * TILE), advance(rows.scales, i)
        _soften(keys.unit, keys.v, scores, keys.width, seen, highs, totals, scale)
    _mix(two, one, rows.scores, keys, coming, out, rows.pad, rows.scales)


@piece
def attend_tile(rows, n_rows, keys, group, visible):
    """All rows of one KV head against one tile, 4 or 3 at a time (the last 3 may be fewer).

    ``group`` query heads share the KV head; row r belongs to query ``r // group``, which sees
    ``visible + r // group`` of the tile's keys. The first block prefetches the next tile.
    """
    _transpose(keys, rows.columns)
    row, coming = 0, keys.coming
    while n_rows - row >= 4 and n_rows - row != 6:
        _block((0,) * 16, (0,) * 8, 4, rows, row, keys, coming, group, visible)
        row, coming = row + 4, 0
    while row < n_rows:
        _block((0,) * 12, (0,) * 6, 3, rows, row, keys, coming, group, visible)
        row, coming = row + 3, 0
