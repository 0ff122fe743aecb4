"""Sampling's inner loops, compiled. ``reference.py`` says what they compute."""

# mypy: allow-untyped-defs, allow-untyped-calls
# numba infers the types of kernels' arguments.
from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64, uint32

from ..kernels.compiled import kernel, piece

BINS = 1 << 16
"""Positive float32 values sort like their bits; the upper half of the bits makes a bin."""


@piece
def _crossing(hist, target):
    """The bin, from the top, at which the sum of counts or masses reaches ``target``, and the sum
    of the bins above it."""
    total = 0.0
    for b in range(BINS - 1, -1, -1):
        if hist[b] > 0.0:
            if total + hist[b] >= target:
                return b, total
            total += hist[b]
    return 0, total


@piece
def _fill(p, bits, hist, by_mass, least):
    """Histogram of values not below ``least``, by count or by mass; returns the sum."""
    total = 0.0
    for b in range(BINS):
        hist[b] = 0.0
    for i in range(p.shape[0]):
        if p[i] >= least and p[i] > 0.0:
            amount = np.float64(p[i]) if by_mass else 1.0
            hist[bits[i] >> 16] += amount
            total += amount
    return total


@piece
def _threshold(p, bits, hist, space, by_mass, target, least, ties):
    """The least value that is kept, and how many of those that equal it.

    Sorts the crossing bin alone. ``least`` and ``ties`` are what an earlier filter left.
    """
    wanted, total = _crossing(hist, target)
    n = 0
    equal = 0
    for i in range(p.shape[0]):
        if bits[i] >> 16 == wanted and p[i] >= least and p[i] > 0.0:
            if p[i] == least:
                equal += 1
                if equal > ties:
                    continue
            space[n] = p[i]
            n += 1
    inside = np.sort(space[:n])
    value = least
    count = 0
    for j in range(n - 1, -1, -1):
        if inside[j] != value or count == 0:
            value = inside[j]
            count = 0
        count += 1
        total += np.float64(inside[j]) if by_mass else 1.0
        if total >= target:
            return value, count
    return value, max(count, 1)


@piece
def _sum(p, least, ties):
    """Mass of the survivors."""
    total = 0.0
    equal = 0
    for i in range(p.shape[0]):
        if p[i] > least:
            total += np.float64(p[i])
        elif p[i] == least and equal < ties:
            equal += 1
            total += np.float64(p[i])
    return total


@piece
def _walk(p, least, ties, target):
    """The survivor, in order of ids, at which the sum passes ``target``; the last one otherwise."""
    total = 0.0
    equal = 0
    last = 0
    for i in range(p.shape[0]):
        if p[i] < least or p[i] <= 0.0:
            continue
        if p[i] == least:
            equal += 1
            if equal > ties:
                continue
        last = i
        total += np.float64(p[i])
        if total > target:
            return i
    return last


@kernel(
    float32[::1],
    uint32[::1],
    int64,
    float64,
    float64,
    float64,
    float64[::1],
    float32[::1],
    int64[::1],
)
def draw_row(p, bits, top_k, top_p, min_p, number, hist, space, out):
    """Draws from one row of probabilities (they need not sum to 1); the id goes to ``out[0]``.

    ``bits`` are the same memory as ``p``; ``hist`` is float64[BINS] and ``space`` as long as ``p``,
    both scratch.
    """
    least, ties = np.float32(0.0), p.shape[0]
    if 0 < top_k < p.shape[0] and _fill(p, bits, hist, False, least) > top_k:
        least, ties = _threshold(p, bits, hist, space, False, np.float64(top_k), least, ties)
    if top_p < 1.0:
        _fill(p, bits, hist, True, least)
        target = top_p * _sum(p, least, ties)
        least, ties = _threshold(p, bits, hist, space, True, target, least, ties)
    if min_p > 0.0:
        floor = np.float32(min_p) * p.max()
        if floor > least:
            least, ties = floor, p.shape[0]
    out[0] = _walk(p, least, ties, number * _sum(p, least, ties))


@kernel(float32[::1], int32[::1])
def apply_mask(x, mask):
    """Sets ``x[id]`` to minus infinity where bit ``id % 32`` of ``mask[id // 32]`` is not set."""
    minus = np.float32(-np.inf)
    for word in range(mask.shape[0]):
        bits = mask[word]
        first = word * 32
        last = min(first + 32, x.shape[0])
        if bits == 0:
            for i in range(first, last):
                x[i] = minus
        elif bits != -1:
            for i in range(first, last):
                if not (bits >> (i - first)) & 1:
                    x[i] = minus


KERNELS = (draw_row, apply_mask)
