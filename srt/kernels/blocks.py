"""Blocks of small matrix products, with the sums in registers: as many vectors as a tuple has."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # has no types
from numba import types

from .emit import (
    F32,
    I64,
    LANES,
    VF,
    as_tuple,
    constant,
    emitted,
    float32_pointer,
    multiply_add,
    read,
    shuffle,
    splat,
    vector,
    write,
)


@emitted
def zeros(ctx: Any, like: Any) -> Any:
    """As many zero vectors as ``like`` is a tuple of anything."""
    result = types.UniTuple(vector, len(like))

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return as_tuple(context, b, result, [constant(F32, 0.0)] * len(like))

    return result(like), generate


@emitted
def score_step(
    ctx: Any, sums: Any, q: Any, q_stride: Any, k0: Any, k1: Any, k2: Any, k3: Any
) -> Any:
    """Adds products of n query pairs (at q, q + stride, ...) and 4 key pairs to 4n sums."""
    n = len(sums) // 4

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        acc = [b.extract_value(args[0], i) for i in range(4 * n)]
        keys = [[b.extract_value(k, half) for half in range(2)] for k in args[3:]]
        for i in range(n):
            row = b.gep(args[1], [b.mul(args[2], ir.Constant(I64, i))])
            for half in range(2):
                query = read(b, row, ir.Constant(I64, half * LANES), VF, 4)
                for j in range(4):
                    acc[4 * i + j] = multiply_add(b, query, keys[j][half], acc[4 * i + j])
        return as_tuple(context, b, sums, acc)

    return sums(sums, float32_pointer, types.int64, k0, k1, k2, k3), generate


@emitted
def store_scores(ctx: Any, sums: Any, out: Any, out_stride: Any) -> Any:
    """Adds up the lanes of 4n sums and writes 4 numbers to each of out, out + stride, ..."""
    n = len(sums) // 4

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for i in range(n):
            four = [b.extract_value(args[0], 4 * i + j) for j in range(4)]
            row = b.gep(args[1], [b.mul(args[2], ir.Constant(I64, i))])
            write(b, _fold4(b, four), row, ir.Constant(I64, 0), 4)
        return context.get_dummy_value()

    return types.void(sums, float32_pointer, types.int64), generate


def _fold4(b: Any, x: list[Any]) -> Any:
    """Four vectors of 16 -> one of their four sums, by a tree of shuffles within 128 bits."""
    lows = [4 * quarter for quarter in range(4)]

    def weave(a: Any, c: Any, first: list[int], second: list[int]) -> Any:
        left = [base + i for base in lows for i in first]
        right = [base + i for base in lows for i in second]
        return b.fadd(shuffle(b, a, c, left), shuffle(b, a, c, right))

    # Within each quarter: (a0+a2, c0+c2, a1+a3, c1+c3), then the same over the two results.
    ac = weave(x[0], x[1], [0, 16, 1, 17], [2, 18, 3, 19])
    eg = weave(x[2], x[3], [0, 16, 1, 17], [2, 18, 3, 19])
    sums = weave(ac, eg, [0, 1, 16, 17], [2, 3, 18, 19])
    half = b.fadd(shuffle(b, sums, sums, [*range(8)]), shuffle(b, sums, sums, [*range(8, 16)]))
    return b.fadd(shuffle(b, half, half, [*range(4)]), shuffle(b, half, half, [*range(4, 8)]))


@emitted
def mix_step(ctx: Any, sums: Any, weights: Any, stride: Any, value: Any) -> Any:
    """Adds weight times a value pair to n pairs of sums; one weight each, a stride apart."""
    n = len(sums) // 2

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        acc = [b.extract_value(args[0], i) for i in range(2 * n)]
        halves = [b.extract_value(args[3], half) for half in range(2)]
        for i in range(n):
            where = b.gep(args[1], [b.mul(args[2], ir.Constant(I64, i))])
            weight = splat(b, b.load(where))
            for half in range(2):
                acc[2 * i + half] = multiply_add(b, weight, halves[half], acc[2 * i + half])
        return as_tuple(context, b, sums, acc)

    return sums(sums, float32_pointer, types.int64, value), generate


@emitted
def add_mixed(ctx: Any, sums: Any, out: Any, stride: Any, scales: Any) -> Any:
    """``out = out * scale + sum`` for n pairs at out, out + stride, ...; one scale for each."""
    n = len(sums) // 2

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for i in range(n):
            row = b.gep(args[1], [b.mul(args[2], ir.Constant(I64, i))])
            scale = splat(b, b.load(b.gep(args[3], [ir.Constant(I64, i)])))
            for half in range(2):
                at = ir.Constant(I64, half * LANES)
                total = b.extract_value(args[0], 2 * i + half)
                write(b, multiply_add(b, read(b, row, at, VF, 4), scale, total), row, at, 4)
        return context.get_dummy_value()

    return types.void(sums, float32_pointer, types.int64, float32_pointer), generate
