"""The small operations of a decoder, compiled; plain ones are in ``TorchOps``.

Addresses are of elements of the model's dtype (bfloat16 if the flag is set, float32 if not) unless
noted; strides are in elements. All run on the calling thread: they take microseconds up to some
dozens of tokens.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# numba infers the types of kernels' arguments.
from __future__ import annotations

import math

import numpy as np
from numba import boolean, float64, int64

from .compiled import kernel, piece
from .emit import LANES
from .simd import (
    add,
    broadcast,
    div,
    exp2,
    fma,
    load,
    load_part,
    mul,
    neg,
    store,
    store_part,
    sum_lanes,
)
from .words import advance, as_bfloat16, as_float32

ZERO, ONE = np.float32(0.0), np.float32(1.0)
MINUS_LOG2E = np.float32(-1.4426950408889634)


@piece
def _add_to(total, delta, size):
    """``total += delta``; returns the sum of squares of what comes out."""
    squares, i = broadcast(ZERO), 0
    while i + LANES <= size:
        value = add(load(total, i), load(delta, i))
        store(total, i, value)
        squares = fma(value, value, squares)
        i += LANES
    if i < size:
        value = add(load_part(total, i, size - i), load_part(delta, i, size - i))
        store_part(total, i, value, size - i)
        squares = fma(value, value, squares)
    return sum_lanes(squares)


@piece
def _squares(values, size):
    squares, i = broadcast(ZERO), 0
    while i + LANES <= size:
        value = load(values, i)
        squares = fma(value, value, squares)
        i += LANES
    if i < size:
        value = load_part(values, i, size - i)
        squares = fma(value, value, squares)
    return sum_lanes(squares)


@piece
def _scaled(values, weight, scale, size, out):
    """``out = values * scale * weight``; ``out`` may be ``values``."""
    factor, i = broadcast(scale), 0
    while i + LANES <= size:
        store(out, i, mul(mul(load(values, i), factor), load(weight, i)))
        i += LANES
    if i < size:
        rest = size - i
        value = mul(mul(load_part(values, i, rest), factor), load_part(weight, i, rest))
        store_part(out, i, value, rest)


@piece
def _add_rms_norm(residual, delta, has_delta, weight, out, rows, size, eps):
    for row in range(rows):
        line = advance(residual, row * size)
        if has_delta:
            squares = _add_to(line, advance(delta, row * size), size)
        else:
            squares = _squares(line, size)
        scale = np.float32(1.0 / math.sqrt(squares / size + eps))
        _scaled(line, weight, scale, size, advance(out, row * size))


@kernel(boolean, *[int64] * 6, float64)
def add_rms_norm(bfloat16, residual, delta, weight, out, rows, size, eps):
    """``Ops.add_rms_norm`` of ``[rows, size]``, residual float32; no delta if its address is 0."""
    total = as_float32(residual)
    if bfloat16:
        d, w, o = as_bfloat16(delta), as_bfloat16(weight), as_bfloat16(out)
        _add_rms_norm(total, d, delta != 0, w, o, rows, size, eps)
    else:
        e, v, p = as_float32(delta), as_float32(weight), as_float32(out)
        _add_rms_norm(total, e, delta != 0, v, p, rows, size, eps)


@piece
def _head_norm(x, weight, tokens, stride, heads, size, eps):
    for token in range(tokens):
        for head in range(heads):
            line = advance(x, token * stride + head * size)
            scale = np.float32(1.0 / math.sqrt(_squares(line, size) / size + eps))
            _scaled(line, weight, scale, size, line)


@kernel(boolean, *[int64] * 6, float64)
def head_norm(bfloat16, x, weight, tokens, stride, heads, size, eps):
    """``Ops.head_norm`` in place, of ``[tokens, heads, size]`` with a stride between tokens."""
    if bfloat16:
        _head_norm(as_bfloat16(x), as_bfloat16(weight), tokens, stride, heads, size, eps)
    else:
        _head_norm(as_float32(x), as_float32(weight), tokens, stride, heads, size, eps)


@piece
def _rope(x, cos, sin, tokens, stride, heads, size):
    half = size // 2
    for token in range(tokens):
        for head in range(heads):
            a = advance(x, token * stride + head * size)
            b, angle, i = advance(a, half), token * half, 0
            while i + LANES <= half:
                p, q, c, s = load(a, i), load(b, i), load(cos, angle + i), load(sin, angle + i)
                store(a, i, fma(p, c, neg(mul(q, s))))
                store(b, i, fma(q, c, mul(p, s)))
                i += LANES
            if i < half:
                n = half - i
                p, q = load_part(a, i, n), load_part(b, i, n)
                c, s = load_part(cos, angle + i, n), load_part(sin, angle + i, n)
                store_part(a, i, fma(p, c, neg(mul(q, s))), n)
                store_part(b, i, fma(q, c, mul(p, s)), n)


@kernel(boolean, *[int64] * 7)
def rope(bfloat16, x, cos, sin, tokens, stride, heads, size):
    """``Ops.rope`` of ``[tokens, heads, size]``; cos, sin: float32 ``[tokens, size / 2]``."""
    if bfloat16:
        _rope(as_bfloat16(x), as_float32(cos), as_float32(sin), tokens, stride, heads, size)
    else:
        _rope(as_float32(x), as_float32(cos), as_float32(sin), tokens, stride, heads, size)


@piece
def _silu(gate, up):
    bottom = add(broadcast(ONE), exp2(mul(gate, broadcast(MINUS_LOG2E))))
    return mul(div(gate, bottom), up)


@piece
def _silu_mul(gate_up, out, rows, size):
    for row in range(rows):
        gate, target, i = advance(gate_up, 2 * row * size), advance(out, row * size), 0
        up = advance(gate, size)
        while i + LANES <= size:
            store(target, i, _silu(load(gate, i), load(up, i)))
            i += LANES
        if i < size:
            n = size - i
            store_part(target, i, _silu(load_part(gate, i, n), load_part(up, i, n)), n)


@kernel(boolean, *[int64] * 4)
def silu_mul(bfloat16, gate_up, out, rows, size):
    """``Ops.silu_mul``: ``[rows, 2 * size]`` -> ``[rows, size]``."""
    if bfloat16:
        _silu_mul(as_bfloat16(gate_up), as_bfloat16(out), rows, size)
    else:
        _silu_mul(as_float32(gate_up), as_float32(out), rows, size)
