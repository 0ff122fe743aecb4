"""Rows of activations to 8 bits and back, compiled: what stands around an 8-bit product.

A *job* is an array of int64 that holds addresses and sizes (see ``Job``). Blocks of rows are taken
from a ticket counter by however many threads run. Activations are bfloat16.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# numba infers the types of kernels' arguments.
from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import int64

from .compiled import kernel, piece
from .emit import LANES
from .simd import (
    absolute,
    add,
    broadcast,
    fma,
    largest,
    load,
    load_part,
    max_lanes,
    mul,
    store,
    store_bytes,
    store_bytes_part,
    store_part,
    sum_lanes,
)
from .words import (
    advance,
    as_bfloat16,
    as_bytes,
    as_float32,
    fork,
    invoke,
    peek,
    poke,
    set_word64,
    take_ticket,
    word64,
)

BLOCK = 8
"""Rows of a ticket."""

STEPS = 127.0
"""The largest row element is so many steps from zero."""

ZERO_POINT = 128

ZERO = np.float32(0.0)
TINY = np.float32(1e-30)
"""Rows whose largest element is below this are zero: their inverse scale would overflow."""


class Job(IntEnum):
    """Where the words of a job are."""

    TICKET = 0
    ROWS = 1
    SIZE = 2  # elements of a row
    SOURCE = 3
    TARGET = 4
    SCALES = 5  # float32, one a row
    BIAS = 6  # bfloat16, or 0
    PARALLEL = 7  # address of GOMP_parallel


@piece
def _extent(line, size):
    """The largest magnitude; NaN if any element is not finite."""
    high, odd, zero, i = broadcast(ZERO), broadcast(ZERO), broadcast(ZERO), 0
    while i + LANES <= size:
        value = load(line, i)
        high, odd = largest(absolute(value), high), fma(value, zero, odd)
        i += LANES
    if i < size:
        value = load_part(line, i, size - i)
        high, odd = largest(absolute(value), high), fma(value, zero, odd)
    return max_lanes(high) + sum_lanes(odd)


@piece
def _quantize_row(line, target, size):
    """Writes the codes; returns the scale."""
    high = _extent(line, size)
    inverse = np.float32(STEPS) / high if high > TINY else ZERO
    factor, i = broadcast(np.float32(inverse)), 0
    while i + LANES <= size:
        store_bytes(target, i, mul(load(line, i), factor))
        i += LANES
    if i < size:
        store_bytes_part(target, i, mul(load_part(line, i, size - i), factor), size - i)
    return np.float32(high / np.float32(STEPS))


def quantize_rows(job: int) -> None:
    """Worker: bfloat16 rows to uint8 with ``ZERO_POINT`` and a scale each."""
    source, target = as_bfloat16(word64(job, Job.SOURCE)), as_bytes(word64(job, Job.TARGET))
    scales = as_float32(word64(job, Job.SCALES))
    rows, size = word64(job, Job.ROWS), word64(job, Job.SIZE)
    first = BLOCK * take_ticket(job, Job.TICKET)
    while first < rows:
        for row in range(first, min(first + BLOCK, rows)):
            line, codes = advance(source, row * size), advance(target, row * size)
            poke(scales, row, _quantize_row(line, codes, size))
        first = BLOCK * take_ticket(job, Job.TICKET)


@piece
def _rescale_row(line, scale, bias, has_bias, target, size):
    factor, i = broadcast(scale), 0
    while i + LANES <= size:
        value = load(line, i)
        moved = fma(value, factor, load(bias, i)) if has_bias else mul(value, factor)
        store(target, i, moved)
        i += LANES
    if i < size:
        n = size - i
        offset = load_part(bias, i, n) if has_bias else broadcast(ZERO)
        store_part(target, i, add(mul(load_part(line, i, n), factor), offset), n)


def rescale_rows(job: int) -> None:
    """Worker: float32 rows times their scales, and the bias, to bfloat16."""
    source, target = as_float32(word64(job, Job.SOURCE)), as_bfloat16(word64(job, Job.TARGET))
    scales, bias = as_float32(word64(job, Job.SCALES)), as_bfloat16(word64(job, Job.BIAS))
    has_bias = word64(job, Job.BIAS) != 0
    rows, size = word64(job, Job.ROWS), word64(job, Job.SIZE)
    first = BLOCK * take_ticket(job, Job.TICKET)
    while first < rows:
        for row in range(first, min(first + BLOCK, rows)):
            line, out = advance(source, row * size), advance(target, row * size)
            _rescale_row(line, peek(scales, row), bias, has_bias, out, size)
        first = BLOCK * take_ticket(job, Job.TICKET)


@kernel(*[int64] * 9)
def run_rows(job, worker, source, target, scales, bias, rows, size, threads):
    """Runs a worker over rows, on one thread or on all: a team of another size is made anew."""
    set_word64(job, Job.TICKET, 0)
    set_word64(job, Job.SOURCE, source)
    set_word64(job, Job.TARGET, target)
    set_word64(job, Job.SCALES, scales)
    set_word64(job, Job.BIAS, bias)
    set_word64(job, Job.ROWS, rows)
    set_word64(job, Job.SIZE, size)
    if threads > 1 and rows > BLOCK and word64(job, Job.PARALLEL) != 0:
        fork(word64(job, Job.PARALLEL), worker, job, threads)
    else:
        invoke(worker, job)
