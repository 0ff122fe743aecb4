"""Attention over paged KV, compiled: flash-style tiles, float32 sums, no copy of KV.

A *job* is an array of int64 that holds addresses and sizes (see ``Job``); its items are independent
and taken from a ticket counter by however many threads run. An *item* is a few query tokens that
look at one list of slots: of one row (consecutive tokens, causal) or of a group of rows (all slots
visible to all). What an item finds is written straight to the output, or, for tokens that have
several items, as a part (maximum, sum, unnormalised output) to be merged by log-sum-exp. Scores are
in units of log2, so that the exponential is a plain power of two.

The running softmax over tiles is that of FlashAttention (Dao et al. 2022); cutting a long context
into parts is "Flash-Decoding" (2023).
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# numba infers the types of kernels' arguments.
from __future__ import annotations

import math
from enum import IntEnum

from numba import boolean, float32, int64

from .blocks import load_operand_part, store_operand
from .compiled import kernel, piece
from .emit import LANES, PAIR
from .simd import (
    broadcast,
    exp2,
    fma,
    load,
    load_part,
    max_lanes,
    mul,
    store,
    store_pair_part,
    store_part,
)
from .tile import LOWEST, SPARE, TILE, Keys, Rows, attend_tile
from .words import (
    advance,
    as_bfloat16,
    as_float32,
    fork,
    invoke,
    peek,
    poke,
    set_word64,
    take_ticket,
    word32,
    word64,
)

MAX_QUERIES = 16
"""Query tokens of an item, at most."""

SPARE_ROOM = LANES // 2
"""Rows of space for a KV head's spare ones: so many that all that follows stays aligned."""

ITEM_WORDS = 6
"""First query, queries, first slot, slots, slots visible to the first query, part or -1."""

LOG2E = 1.4426950408889634


class Job(IntEnum):
    """Where the words of a job are: addresses (of int32 unless noted) and counts."""

    TICKET = 0
    SPACE_TICKET = 1
    MERGE_TICKET = 2
    N_ITEMS = 3
    ITEMS = 4
    QUERIES = 5  # token of each query
    SLOTS = 6
    Q = 7  # of elements
    Q_STRIDE = 8  # elements between tokens
    OUT = 9  # of elements
    K_POOL = 10  # of elements
    V_POOL = 11
    HEADS = 12
    KV_HEADS = 13
    HEAD_DIM = 14
    PARTS = 15  # of float32
    SPACE = 16  # of float32, for each thread
    SPACE_STRIDE = 17  # float32 between threads
    N_MERGED = 18
    MERGED = 19  # the token
    MERGED_STARTS = 20  # where its parts start in the next; one more entry than tokens
    MERGED_PARTS = 21
    N_TOKENS = 22
    NEW_SLOTS = 23
    THREADS = 24
    PARALLEL = 25  # address of GOMP_parallel
    ATTEND = 26  # address of the worker for items
    MERGE = 27  # address of the worker for merges


def padded(size: int) -> int:
    """A head's size in a buffer: whole pairs."""
    return -(-size // PAIR) * PAIR


def part_floats(heads: int, head_dim: int) -> int:
    """float32 numbers in a part: maximum and sum of each head, then the outputs."""
    return -(-2 * heads // LANES) * LANES + heads * padded(head_dim)


def space_floats(heads: int, kv_heads: int, head_dim: int) -> int:
    """float32 numbers that a thread works in."""
    rows = MAX_QUERIES * heads + SPARE_ROOM * kv_heads
    return 2 * rows * padded(head_dim) + 2 * rows + (8 + padded(head_dim)) * TILE + LANES


@piece
def _begin(job, q_in, first, queries, q, out, highs, totals):
    """Queries of an item -> operands; empties the running softmax.

    Rows are ordered by KV head, then query, then head within the group.
    """
    heads, kv_heads = word64(job, Job.HEADS), word64(job, Job.KV_HEADS)
    head_dim = word64(job, Job.HEAD_DIM)
    group, pad = heads // kv_heads, -(-head_dim // PAIR) * PAIR
    nothing = broadcast(float32(0.0))
    for j in range(queries):
        token = word32(word64(job, Job.QUERIES), first + j)
        for head in range(heads):
            row = head // group * (queries * group + SPARE) + j * group + head % group
            source = advance(q_in, token * word64(job, Job.Q_STRIDE) + head * head_dim)
            for d in range(0, head_dim, PAIR):
                store_operand(advance(q, row * pad), d, load_operand_part(source, d, head_dim - d))
                store(out, row * pad + d, nothing)
                store(out, row * pad + d + LANES, nothing)
    for row in range(queries * heads + kv_heads * SPARE):
        poke(highs, row, LOWEST)
        poke(totals, row, float32(0.0))


@piece
def _finish(job, target, first, queries, out, totals):
    """Writes the normalised output of an item's queries."""
    heads, kv_heads = word64(job, Job.HEADS), word64(job, Job.KV_HEADS)
    head_dim = word64(job, Job.HEAD_DIM)
    group, pad = heads // kv_heads, -(-head_dim // PAIR) * PAIR
    for j in range(queries):
        token = word32(word64(job, Job.QUERIES), first + j)
        for head in range(heads):
            row = head // group * (queries * group + SPARE) + j * group + head % group
            total = peek(totals, row)
            share = broadcast(float32(1.0) / total if total != 0.0 else float32(0.0))
            place = (token * heads + head) * head_dim
            for d in range(0, head_dim, PAIR):
                low = mul(load(out, row * pad + d), share)
                high = mul(load(out, row * pad + d + LANES), share)
                store_pair_part(target, place + d, (low, high), head_dim - d)


@piece
def _set_aside(job, part, queries, out, highs, totals):
    """Writes the parts of an item's queries: consecutive parts from ``part`` on."""
    heads, kv_heads = word64(job, Job.HEADS), word64(job, Job.KV_HEADS)
    head_dim = word64(job, Job.HEAD_DIM)
    group, pad = heads // kv_heads, -(-head_dim // PAIR) * PAIR
    numbers = -(-2 * heads // LANES) * LANES
    size = numbers + heads * pad
    for j in range(queries):
        record = as_float32(word64(job, Job.PARTS) + (part + j) * size * 4)
        for head in range(heads):
            row = head // group * (queries * group + SPARE) + j * group + head % group
            poke(record, head, peek(highs, row))
            poke(record, heads + head, peek(totals, row))
            for d in range(0, pad, LANES):
                store(record, numbers + head * pad + d, load(out, row * pad + d))


@piece
def _locate(slots, first, count, size, offsets):
    """Distances in the pool of up to a tile's slots from the ``first`` on; returns how many."""
    width = min(TILE, count - first)
    for t in range(width):
        set_word64(offsets, t, word32(slots, first + t) * size)
    return width


@piece
def _attend_item(job, item, space, q_in, target, k_pool, v_pool):
    at = word64(job, Job.ITEMS) + item * (4 * ITEM_WORDS)
    first, queries, start, count = word32(at, 0), word32(at, 1), word32(at, 2), word32(at, 3)
    visible, part = word32(at, 4), word32(at, 5)
    heads, kv_heads = word64(job, Job.HEADS), word64(job, Job.KV_HEADS)
    head_dim = word64(job, Job.HEAD_DIM)
    group, pad = heads // kv_heads, -(-head_dim // PAIR) * PAIR
    most = MAX_QUERIES * heads + SPARE_ROOM * kv_heads
    q = as_float32(space)
    out = advance(q, most * pad)
    highs = advance(out, most * pad)
    totals = advance(highs, most)
    scores = advance(totals, most)
    scales = advance(scores, 4 * TILE)
    ahead = space + 4 * (2 * most * pad + 2 * most + 4 * TILE + LANES)
    offsets = ahead + 8 * TILE
    columns = as_float32(offsets + 8 * TILE)
    _begin(job, q_in, first, queries, q, out, highs, totals)
    unit = float32(LOG2E / math.sqrt(head_dim))
    slots, size = word64(job, Job.SLOTS) + 4 * start, kv_heads * head_dim
    coming = _locate(slots, 0, count, size, ahead)
    for tile in range(0, count, TILE):
        offsets, ahead, width = ahead, offsets, coming
        coming = _locate(slots, tile + TILE, count, size, ahead)
        for kv_head in range(kv_heads):
            row, skip = kv_head * (queries * group + SPARE), kv_head * head_dim
            k, v = advance(k_pool, skip), advance(v_pool, skip)
            keys = Keys(k, v, offsets, width, ahead, coming, head_dim, unit)
            rows = Rows(
                advance(q, row * pad),
                advance(out, row * pad),
                advance(highs, row),
                advance(totals, row),
                scores,
                scales,
                columns,
                pad,
            )
            attend_tile(rows, queries * group, keys, group, visible - tile)
    if part < 0:
        _finish(job, target, first, queries, out, totals)
    else:
        _set_aside(job, part, queries, out, highs, totals)


@piece
def _attend(job, q_in, target, k_pool, v_pool):
    space = word64(job, Job.SPACE) + 4 * word64(job, Job.SPACE_STRIDE) * take_ticket(
        job, Job.SPACE_TICKET
    )
    item = take_ticket(job, Job.TICKET)
    while item < word64(job, Job.N_ITEMS):
        _attend_item(job, item, space, q_in, target, k_pool, v_pool)
        item = take_ticket(job, Job.TICKET)


def attend_bfloat16(job: int) -> None:
    """Worker: takes items of a job until none is left."""
    _attend(
        job,
        as_bfloat16(word64(job, Job.Q)),
        as_bfloat16(word64(job, Job.OUT)),
        as_bfloat16(word64(job, Job.K_POOL)),
        as_bfloat16(word64(job, Job.V_POOL)),
    )


def attend_float32(job: int) -> None:
    """As ``attend_bfloat16``."""
    _attend(
        job,
        as_float32(word64(job, Job.Q)),
        as_float32(word64(job, Job.OUT)),
        as_float32(word64(job, Job.K_POOL)),
        as_float32(word64(job, Job.V_POOL)),
    )


@piece
def _merge_head(job, index, head, target):
    heads, head_dim = word64(job, Job.HEADS), word64(job, Job.HEAD_DIM)
    pad = -(-head_dim // PAIR) * PAIR
    numbers = -(-2 * heads // LANES) * LANES
    size, parts = 4 * (numbers + heads * pad), word64(job, Job.PARTS)
    starts, which = word64(job, Job.MERGED_STARTS), word64(job, Job.MERGED_PARTS)
    begin, end = word32(starts, index), word32(starts, index + 1)
    high = LOWEST
    for i in range(begin, end):
        high = max(high, peek(as_float32(parts + word32(which, i) * size), head))
    base = high if high > LOWEST else float32(0.0)
    place = (word32(word64(job, Job.MERGED), index) * heads + head) * head_dim
    for d in range(0, head_dim, PAIR):
        first, second = broadcast(float32(0.0)), broadcast(float32(0.0))
        total = broadcast(float32(0.0))
        for i in range(begin, end):
            record = as_float32(parts + word32(which, i) * size)
            weight = exp2(broadcast(peek(record, head) - base))
            total = fma(weight, broadcast(peek(record, heads + head)), total)
            first = fma(weight, load(record, numbers + head * pad + d), first)
            second = fma(weight, load(record, numbers + head * pad + d + LANES), second)
        whole = max_lanes(total)
        share = broadcast(float32(1.0) / whole if whole != 0.0 else float32(0.0))
        store_pair_part(target, place + d, (mul(first, share), mul(second, share)), head_dim - d)


@piece
def _merge(job, target):
    index = take_ticket(job, Job.MERGE_TICKET)
    while index < word64(job, Job.N_MERGED):
        for head in range(word64(job, Job.HEADS)):
            _merge_head(job, index, head, target)
        index = take_ticket(job, Job.MERGE_TICKET)


def merge_bfloat16(job: int) -> None:
    """Worker: merges the parts of tokens until none is left."""
    _merge(job, as_bfloat16(word64(job, Job.OUT)))


def merge_float32(job: int) -> None:
    """As ``merge_bfloat16``."""
    _merge(job, as_float32(word64(job, Job.OUT)))


@piece
def _place(job, source, stride, target):
    """Copies the step's new keys (or values) to their slots."""
    size = word64(job, Job.KV_HEADS) * word64(job, Job.HEAD_DIM)
    slots = word64(job, Job.NEW_SLOTS)
    for token in range(word64(job, Job.N_TOKENS)):
        line, slot = advance(source, token * stride), advance(target, word32(slots, token) * size)
        d = 0
        while d + LANES <= size:
            store(slot, d, load(line, d))
            d += LANES
        if d < size:
            store_part(slot, d, load_part(line, d, size - d), size - d)


@piece
def _share_out(job, worker, tickets):
    """Runs a worker on all threads: a team of another size than torch's would be made anew."""
    threads = word64(job, Job.THREADS)
    if tickets > 1 and threads > 1 and word64(job, Job.PARALLEL) != 0:
        fork(word64(job, Job.PARALLEL), worker, job, threads)
    else:
        invoke(worker, job)


@kernel(int64, boolean, *[int64] * 9)
def run_job(job, bfloat16, q, q_stride, k_new, k_stride, v_new, v_stride, k_pool, v_pool, out):
    """Stores the step's k and v in the pool, then attends. Addresses of elements; see ``Job``."""
    set_word64(job, Job.Q, q)
    set_word64(job, Job.Q_STRIDE, q_stride)
    set_word64(job, Job.K_POOL, k_pool)
    set_word64(job, Job.V_POOL, v_pool)
    set_word64(job, Job.OUT, out)
    set_word64(job, Job.TICKET, 0)
    set_word64(job, Job.SPACE_TICKET, 0)
    set_word64(job, Job.MERGE_TICKET, 0)
    if bfloat16:
        _place(job, as_bfloat16(k_new), k_stride, as_bfloat16(k_pool))
        _place(job, as_bfloat16(v_new), v_stride, as_bfloat16(v_pool))
    else:
        _place(job, as_float32(k_new), k_stride, as_float32(k_pool))
        _place(job, as_float32(v_new), v_stride, as_float32(v_pool))
    _share_out(job, word64(job, Job.ATTEND), word64(job, Job.N_ITEMS))
    if word64(job, Job.N_MERGED) > 0:
        _share_out(job, word64(job, Job.MERGE), word64(job, Job.N_MERGED))
