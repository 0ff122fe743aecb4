"""Vectors of 16 float32 for numba: explicit SIMD, where automatic vectorisation is left to chance.

Functions that are generic in a pointer's element type are compiled once for each. Arithmetic is
always float32; a store to bfloat16 rounds to the nearest, ties to even, and keeps NaN.

A *pair* is 32 consecutive elements as two vectors. Of bfloat16 they are the elements at even and
at odd indices (unpacking 32-bit words takes one shift and one mask, half of what the natural order
takes); of float32 the first and the last 16. The order within a pair is thus private: what is
loaded as pairs may only meet what was loaded as pairs of the same element type.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .emit import (
    F32,
    I32,
    I64,
    LANES,
    VB,
    VF,
    VH,
    VI,
    as_tuple,
    call_llvm,
    constant,
    emitted,
    is_float32,
    lanes_below,
    multiply_add,
    narrow,
    pack,
    read,
    read_part,
    shuffle,
    splat,
    unpack,
    vector,
    widen,
    write,
    write_part,
)


def _pair_type() -> Any:
    return types.UniTuple(vector, 2)


# Loads and stores.


@emitted
def load(ctx: Any, pointer: Any, index: Any) -> Any:
    """16 elements in natural order, as a vector."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if is_float32(pointer):
            return read(b, args[0], args[1], VF, 4)
        return widen(b, read(b, args[0], args[1], VH, 2))

    return vector(pointer, types.int64), generate


@emitted
def load_part(ctx: Any, pointer: Any, index: Any, count: Any) -> Any:
    """As ``load`` with the first ``count`` elements; the other lanes are zero."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if is_float32(pointer):
            return read_part(b, args[0], args[1], VF, 4, args[2])
        return widen(b, read_part(b, args[0], args[1], VH, 2, args[2]))

    return vector(pointer, types.int64, types.int64), generate


@emitted
def store(ctx: Any, pointer: Any, index: Any, value: Any) -> Any:
    """Writes 16 elements."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if is_float32(pointer):
            write(b, args[2], args[0], args[1], 4)
        else:
            write(b, narrow(b, args[2]), args[0], args[1], 2)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vector), generate


@emitted
def store_part(ctx: Any, pointer: Any, index: Any, value: Any, count: Any) -> Any:
    """Writes the first ``count`` elements."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if is_float32(pointer):
            write_part(b, args[2], args[0], args[1], 4, args[3])
        else:
            write_part(b, narrow(b, args[2]), args[0], args[1], 2, args[3])
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vector, types.int64), generate


@emitted
def load_pair(ctx: Any, pointer: Any, index: Any) -> Any:
    """32 elements as a pair (see the module)."""
    result = _pair_type()

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        p, i = args
        if is_float32(pointer):
            later = b.add(i, ir.Constant(I64, LANES))
            halves = [read(b, p, i, VF, 4), read(b, p, later, VF, 4)]
        else:
            halves = unpack(b, read(b, p, i, VI, 2))
        return as_tuple(context, b, result, halves)

    return result(pointer, types.int64), generate


@emitted
def load_pair_part(ctx: Any, pointer: Any, index: Any, count: Any) -> Any:
    """As ``load_pair`` with the first ``count`` elements (an even number); the others are zero."""
    result = _pair_type()

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        p, i, n = args
        if is_float32(pointer):
            step = ir.Constant(I64, LANES)
            later, rest = b.add(i, step), b.sub(n, step)
            halves = [read_part(b, p, i, VF, 4, n), read_part(b, p, later, VF, 4, rest)]
        else:
            words = b.ashr(n, ir.Constant(I64, 1))
            halves = unpack(b, read_part(b, p, i, VI, 2, words))
        return as_tuple(context, b, result, halves)

    return result(pointer, types.int64, types.int64), generate


@emitted
def store_pair_part(ctx: Any, pointer: Any, index: Any, pair: Any, count: Any) -> Any:
    """Writes the first ``count`` (an even number) of a pair's 32 elements."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        p, i, both, n = args
        first, second = b.extract_value(both, 0), b.extract_value(both, 1)
        if is_float32(pointer):
            step = ir.Constant(I64, LANES)
            write_part(b, first, p, i, 4, n)
            write_part(b, second, p, b.add(i, step), 4, b.sub(n, step))
        else:
            write_part(b, pack(b, first, second), p, i, 2, b.ashr(n, ir.Constant(I64, 1)))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, pair, types.int64), generate


def _unsigned(b: Any, value: Any) -> Any:
    """float32 of -128 to 127 -> the nearest integer plus 128, as a byte; 128 for NaN."""
    number = b.select(b.fcmp_unordered("uno", value, value), constant(F32, 0.0), value)
    whole = b.fptosi(call_llvm(b, "llvm.rint.v16f32", VF, number), VI)
    return b.trunc(b.add(whole, constant(I32, 128)), VB)


@emitted
def store_bytes(ctx: Any, pointer: Any, index: Any, value: Any) -> Any:
    """Writes 16 numbers of -128 to 127 as bytes, rounded, 128 added."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        write(b, _unsigned(b, args[2]), args[0], args[1], 1)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vector), generate


@emitted
def store_bytes_part(ctx: Any, pointer: Any, index: Any, value: Any, count: Any) -> Any:
    """As ``store_bytes``, the first ``count``."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        write_part(b, _unsigned(b, args[2]), args[0], args[1], 1, args[3])
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vector, types.int64), generate


# Arithmetic.


@emitted
def broadcast(ctx: Any, value: Any) -> Any:
    """All lanes the same."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return splat(b, args[0])

    return vector(types.float32), generate


@emitted
def add(ctx: Any, x: Any, y: Any) -> Any:
    """x + y"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.fadd(*args)

    return vector(vector, vector), generate


@emitted
def mul(ctx: Any, x: Any, y: Any) -> Any:
    """x * y"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.fmul(*args)

    return vector(vector, vector), generate


@emitted
def neg(ctx: Any, x: Any) -> Any:
    """-x"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.fneg(*args)

    return vector(vector), generate


@emitted
def div(ctx: Any, x: Any, y: Any) -> Any:
    """x / y"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.fdiv(*args)

    return vector(vector, vector), generate


@emitted
def fma(ctx: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return multiply_add(b, *args)

    return vector(vector, vector, vector), generate


@emitted
def largest(ctx: Any, x: Any, y: Any) -> Any:
    """The larger in each lane; a NaN gives way to a number."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return call_llvm(b, "llvm.maxnum.v16f32", VF, *args)

    return vector(vector, vector), generate


@emitted
def absolute(ctx: Any, x: Any) -> Any:
    """|x|"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return call_llvm(b, "llvm.fabs.v16f32", VF, *args)

    return vector(vector), generate


@emitted
def keep_first(ctx: Any, x: Any, count: Any) -> Any:
    """The first ``count`` lanes (any number); the others become -inf."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.select(lanes_below(b, args[1]), args[0], constant(F32, float("-inf")))

    return vector(vector, types.int64), generate


@emitted
def sum_lanes(ctx: Any, x: Any) -> Any:
    """The sum of the lanes, added as a tree."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        for width in (8, 4, 2, 1):
            low = shuffle(b, value, value, list(range(width)))
            value = b.fadd(low, shuffle(b, value, value, list(range(width, 2 * width))))
        return b.extract_element(value, ir.Constant(I32, 0))

    return types.float32(vector), generate


@emitted
def max_lanes(ctx: Any, x: Any) -> Any:
    """The largest lane; NaN only if all are."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        for width in (8, 4, 2, 1):
            low = shuffle(b, value, value, list(range(width)))
            high = shuffle(b, value, value, list(range(width, 2 * width)))
            value = call_llvm(b, f"llvm.maxnum.v{width}f32", low.type, low, high)
        return b.extract_element(value, ir.Constant(I32, 0))

    return types.float32(vector), generate


# Taylor-like minimax coefficients of 2**x on [-0.5, 0.5], lowest power first (relative error 2e-7).
_EXP2 = (
    1.0,
    0.6931471824645996,
    0.24022650718688965,
    0.05550410598516464,
    0.009618136100471020,
    0.0013333557872101665,
    0.00015403529920149595,
)


def _power(b: Any, value: Any) -> Any:
    """2**x for x within the exponents of float32."""
    # Adding 1.5 * 2**23 rounds to an integer and leaves it in the low bits of the sum.
    magic = constant(F32, 12582912.0)
    shifted = b.fadd(value, magic)
    part = b.fsub(value, b.fsub(shifted, magic))
    poly = constant(F32, _EXP2[-1])
    for coefficient in reversed(_EXP2[:-1]):
        poly = multiply_add(b, poly, part, constant(F32, coefficient))
    power = b.shl(b.bitcast(shifted, VI), constant(I32, 23))
    return b.bitcast(b.add(b.bitcast(poly, VI), power), VF)


@emitted
def exp2_below(ctx: Any, x: Any) -> Any:
    """2**x for x of about 0 or less; 2**-126 (as good as nothing) below that; NaN for NaN."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        low = constant(F32, -126.0)
        return _power(b, b.select(b.fcmp_ordered("<", args[0], low), low, args[0]))

    return vector(vector), generate


@emitted
def exp2(ctx: Any, x: Any) -> Any:
    """2**x; 0 below -126 (also for -inf), inf above 128, NaN for NaN."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        result = _power(b, value)
        low = b.fcmp_ordered("<", value, constant(F32, -126.0))
        high = b.fcmp_ordered(">=", value, constant(F32, 128.0))
        result = b.select(low, constant(F32, 0.0), result)
        result = b.select(high, constant(F32, float("inf")), result)
        return b.select(b.fcmp_unordered("uno", value, value), value, result)

    return vector(vector), generate
