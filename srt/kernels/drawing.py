"""Sampling's inner loops, compiled. ``sampling/reference.py`` says what they compute."""

# mypy: allow-untyped-defs, allow-untyped-calls
# numba infers the types of kernels' arguments.
from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64, uint32

from .compiled import kernel, piece

BINS = 1 << 16
"""Positive float32 values sort like their bits; the upper half of the bits makes a bin."""

BLOCK = 256
"""Probabilities that are summed before they are looked at one by one."""

FEW = 512
"""Tokens that are sorted outright."""


@piece
def _crossing(hist, top, target):
    """The bin, from ``top`` down, at which the sum of counts or masses reaches ``target``, and the
    sum of the bins above it."""
    total = 0.0
    for b in range(top, -1, -1):
        if hist[b] > 0.0:
            if total + hist[b] >= target:
                return b, total
            total += hist[b]
    return 0, total


@piece
def _fill(p, bits, hist, top, by_mass, least):
    """Histogram of values not below ``least``, by count or by mass; returns the sum. ``top`` is the
    bin of the largest."""
    total = 0.0
    for b in range(top + 1):
        hist[b] = 0.0
    for i in range(p.shape[0]):
        if p[i] >= least and p[i] > 0.0:
            amount = np.float64(p[i]) if by_mass else 1.0
            hist[bits[i] >> 16] += amount
            total += amount
    return total


@piece
def _threshold(p, bits, hist, top, space, by_mass, target, least, ties):
    """The least value that is kept, and how many of those that equal it.

    Sorts the crossing bin alone. ``least`` and ``ties`` are what an earlier filter left.
    """
    wanted, total = _crossing(hist, top, target)
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
    return _last_kept(np.sort(space[:n]), n, by_mass, target, total, least)


@piece
def _likely(p, most, space, by_mass, target):
    """``_threshold`` for the usual row, where a few hundred tokens hold the mass, without a
    histogram: looks at those within some powers of two of the largest. Count 0: not so here."""
    low = most
    for _ in range(4):
        low *= np.float32(0.0625)
        n, total = 0, 0.0
        for i in range(p.shape[0]):
            if p[i] >= low:
                if n == FEW:
                    return low, 0
                space[n] = p[i]
                n += 1
                total += np.float64(p[i]) if by_mass else 1.0
        if total >= target:
            return _last_kept(np.sort(space[:n]), n, by_mass, target, 0.0, low)
    return low, 0


@piece
def _last_kept(rising, n, by_mass, target, total, least):
    """From the largest down, the value at which the sum reaches ``target``, and how many equal."""
    value, count = least, 0
    for j in range(n - 1, -1, -1):
        if rising[j] != value or count == 0:
            value, count = rising[j], 0
        count += 1
        total += np.float64(rising[j]) if by_mass else 1.0
        if total >= target:
            return value, count
    return value, max(count, 1)


@piece
def _block_sum(p, start, stop, least):
    """Mass of ``p[start:stop]`` that is above ``least``; independent sums keep the adders busy."""
    a = b = c = d = 0.0
    i = start
    while i + 4 <= stop:
        a += np.float64(p[i]) if p[i] > least else 0.0
        b += np.float64(p[i + 1]) if p[i + 1] > least else 0.0
        c += np.float64(p[i + 2]) if p[i + 2] > least else 0.0
        d += np.float64(p[i + 3]) if p[i + 3] > least else 0.0
        i += 4
    while i < stop:
        a += np.float64(p[i]) if p[i] > least else 0.0
        i += 1
    return (a + b) + (c + d)


@piece
def _sums(p, least, ties, sums):
    """Mass of the survivors: those above ``least`` and the first ``ties`` that equal it.

    ``sums[k]`` becomes that of block k alone.
    """
    total = 0.0
    left = ties if least > 0.0 else 0
    for k in range(-(-p.shape[0] // BLOCK)):
        start, stop = k * BLOCK, min(k * BLOCK + BLOCK, p.shape[0])
        mass = _block_sum(p, start, stop, least)
        if left > 0:
            for i in range(start, stop):
                if p[i] == least and left > 0:
                    mass += np.float64(least)
                    left -= 1
        sums[k] = mass
        total += mass
    return total


@piece
def _walk(p, least, ties, sums, target):
    """The survivor, in order of ids, at which the sum passes ``target``; the last one otherwise."""
    total = 0.0
    left = ties if least > 0.0 else 0
    last = 0
    for k in range(-(-p.shape[0] // BLOCK)):
        start, stop = k * BLOCK, min(k * BLOCK + BLOCK, p.shape[0])
        # A block that cannot hold the end is stepped over; ties are counted on the way.
        over = total + sums[k] > target
        if not over and left == 0:
            total += sums[k]
            last = stop - 1 if sums[k] > 0.0 else last
            continue
        mass = total
        for i in range(start, stop):
            if p[i] == least and left > 0:
                left -= 1
            elif p[i] <= least:
                continue
            last = i
            mass += np.float64(p[i])
            if over and mass > target:
                return i
        total += sums[k]
    while last > 0 and p[last] <= least:  # the sums' rounding has eaten the end
        last -= 1
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
    float64[::1],
    int64[::1],
)
def draw_row(p, bits, top_k, top_p, min_p, number, hist, space, sums, out):
    """Draws from one row of probabilities (they need not sum to 1); the id goes to ``out[0]``.

    ``bits`` are the same memory as ``p``. Scratch: ``hist`` is float64[BINS], ``space`` as long as
    ``p``, ``sums`` has an element for each block of ``p``.
    """
    size, place = p.shape[0], p.argmax()
    most = p[place]
    least, ties = np.float32(0.0), size
    if 0 < top_k < size:
        found, count = _likely(p, most, space, False, np.float64(top_k))
        if count > 0:
            least, ties = found, count
        else:
            top = bits[place] >> 16
            if _fill(p, bits, hist, top, False, least) > top_k:
                target = np.float64(top_k)
                least, ties = _threshold(p, bits, hist, top, space, False, target, least, ties)
    if top_p < 1.0:
        target = top_p * _sums(p, least, ties, sums)
        found, count = _likely(p, most, space, True, target)
        if count > 0 and found > least:
            least, ties = found, count
        else:
            top = bits[place] >> 16
            _fill(p, bits, hist, top, True, least)
            least, ties = _threshold(p, bits, hist, top, space, True, target, least, ties)
    if min_p > 0.0:
        floor = np.float32(min_p) * most
        if floor > least:
            least, ties = floor, size
    total = _sums(p, least, ties, sums)
    out[0] = _walk(p, least, ties, sums, number * total)


@kernel(float32[::1], int32[::1])
def apply_mask(x, mask):
    """Sets ``x[id]`` to minus infinity where bit ``id % 32`` of ``mask[id // 32]`` is not set."""
    minus = np.float32(-np.inf)
    whole = x.shape[0] // 32
    for word in range(min(mask.shape[0], whole)):
        bits = mask[word]
        first = word * 32
        if bits == 0:
            for i in range(32):
                x[first + i] = minus
        elif bits != -1:
            for i in range(32):  # a choice of values, not of stores: so it becomes vector code
                value = x[first + i]
                x[first + i] = value if (bits >> np.int32(i)) & np.int32(1) else minus
    for id in range(whole * 32, min(mask.shape[0] * 32, x.shape[0])):
        if not (mask[id // 32] >> np.int32(id % 32)) & np.int32(1):
            x[id] = minus


KERNELS = (draw_row, apply_mask)
