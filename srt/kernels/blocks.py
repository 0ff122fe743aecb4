"""Blocks of small matrix products, with the sums in registers: as many vectors as a tuple has.

An *operand* is 32 consecutive elements in the form that products take. Where the processor
multiplies pairs of bfloat16 (AVX512-BF16), an operand of bfloat16 is a vector of 16 words, and
weights are rounded to bfloat16, too; anywhere else an operand is a pair of float32 vectors, in the
order of ``simd``. Which it is follows from a pointer's type and the processor. Either way the sums
over values have the order of a pair.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .emit import (
    F32,
    I16,
    I32,
    I64,
    LANES,
    PAIR,
    VF,
    VI,
    as_tuple,
    constant,
    dot_words,
    emitted,
    float32_pointer,
    is_float32,
    multiply_add,
    read,
    read_part,
    round_words,
    shuffle,
    splat,
    unpack,
    uses_dots,
    vector,
    widen,
    words,
    write,
)


def _operand(pointer: Any) -> Any:
    return words if uses_dots(pointer) else types.UniTuple(vector, 2)


def _halves(b: Any, pointer: Any, where: Any, index: Any, count: Any) -> list[Any]:
    """Two float32 vectors of 32 elements, or of the first ``count`` (``None``: all)."""
    if is_float32(pointer):
        step = ir.Constant(I64, LANES)
        later = b.add(index, step)
        if count is None:
            return [read(b, where, index, VF, 4), read(b, where, later, VF, 4)]
        first = read_part(b, where, index, VF, 4, count)
        return [first, read_part(b, where, later, VF, 4, b.sub(count, step))]
    return unpack(b, _words(b, where, index, count))


def _words(b: Any, where: Any, index: Any, count: Any) -> Any:
    if count is None:
        return read(b, where, index, VI, 2)
    return read_part(b, where, index, VI, 2, b.ashr(count, ir.Constant(I64, 1)))


def _load_operand(context: Any, b: Any, pointer: Any, where: Any, index: Any, count: Any) -> Any:
    if uses_dots(pointer):
        return _words(b, where, index, count)
    halves = _halves(b, pointer, where, index, count)
    return as_tuple(context, b, _operand(pointer), halves)


@emitted
def load_operand(ctx: Any, pointer: Any, index: Any) -> Any:
    """32 elements as an operand."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _load_operand(context, b, pointer, args[0], args[1], None)

    return _operand(pointer)(pointer, types.int64), generate


@emitted
def load_operand_part(ctx: Any, pointer: Any, index: Any, count: Any) -> Any:
    """As ``load_operand`` with the first ``count`` elements (an even number); the rest is zero."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _load_operand(context, b, pointer, *args)

    return _operand(pointer)(pointer, types.int64, types.int64), generate


@emitted
def store_operand(ctx: Any, out: Any, index: Any, value: Any) -> Any:
    """Writes an operand at an element (a multiple of 32) of a row of a float32 buffer.

    A row of words takes half as many numbers as it has elements.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        where, at, operand = args
        if value == words:
            write(b, operand, where, b.ashr(at, ir.Constant(I64, 1)), 4)
        else:
            for half in range(2):
                later = b.add(at, ir.Constant(I64, half * LANES))
                write(b, b.extract_value(operand, half), where, later, 4)
        return context.get_dummy_value()

    return types.void(float32_pointer, types.int64, value), generate


@emitted
def zeros(ctx: Any, like: Any) -> Any:
    """As many zero vectors as ``like`` is a tuple of anything."""
    result = types.UniTuple(vector, len(like))

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return as_tuple(context, b, result, [constant(F32, 0.0)] * len(like))

    return result(like), generate


def _transposed(b: Any, rows: list[Any]) -> list[Any]:
    """A 16 x 16 block of 32-bit numbers, by shuffles within and then of quarters of vectors."""
    lows = [4 * quarter for quarter in range(4)]

    def woven(x: Any, y: Any, lanes: list[int]) -> Any:
        return shuffle(b, x, y, [base + lane for base in lows for lane in lanes])

    twos, fours, columns = [None] * 16, [None] * 16, [None] * 16
    for i in range(0, 16, 2):
        twos[i] = woven(rows[i], rows[i + 1], [0, 16, 1, 17])
        twos[i + 1] = woven(rows[i], rows[i + 1], [2, 18, 3, 19])
    for i in range(0, 16, 4):
        for j in range(2):
            x, y = twos[i + j], twos[i + 2 + j]
            fours[i + 2 * j] = woven(x, y, [0, 1, 16, 17])
            fours[i + 2 * j + 1] = woven(x, y, [2, 3, 18, 19])
    for j in range(4):
        for half in range(2):
            lanes = [*range(8 * half, 8 * half + 8), *range(16 + 8 * half, 24 + 8 * half)]
            x = shuffle(b, fours[j], fours[4 + j], lanes)
            y = shuffle(b, fours[8 + j], fours[12 + j], lanes)
            for odd in range(2):
                quarters = [4 * odd, 8 + 4 * odd, 16 + 4 * odd, 24 + 4 * odd]
                picked = [start + lane for start in quarters for lane in range(4)]
                columns[4 * (2 * half + odd) + j] = shuffle(b, x, y, picked)
    return columns


@emitted
def transpose_keys(
    ctx: Any, k: Any, offsets: Any, first: Any, last: Any, d: Any, count: Any, out: Any, stride: Any
) -> Any:
    """32 elements from ``d`` on of 16 keys, as columns of a float32 buffer.

    Keys ``first`` to ``first + 15`` (``last`` stands in for those after it) are at int64 distances
    ``offsets``. Element i of key t goes to ``out[i * stride + t]``, or the word of elements 2i and
    2i + 1 does. Only ``count`` elements are read, or all if it is a literal ``None``.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        where, table, start, end, element, size, target, step = args
        table = b.inttoptr(table, I64.as_pointer())
        size = None if count == types.none else size
        found = []
        for i in range(LANES):
            key = b.add(start, ir.Constant(I64, i))
            key = b.select(b.icmp_signed("<", key, end), key, end)
            index = b.add(b.load(b.gep(table, [key])), element)
            if uses_dots(k):
                found.append([_words(b, where, index, size)])
            else:
                found.append(_halves(b, k, where, index, size))
        row = b.ashr(element, ir.Constant(I64, 1)) if uses_dots(k) else element
        for half in range(len(found[0])):
            for i, column in enumerate(_transposed(b, [key[half] for key in found])):
                line = b.mul(b.add(row, ir.Constant(I64, half * LANES + i)), step)
                write(b, column, target, b.add(line, start), 4)
        return context.get_dummy_value()

    integers = (types.int64,) * 4
    return types.void(k, *integers, count, float32_pointer, types.int64), generate


@emitted
def load_columns(ctx: Any, like: Any, k: Any, columns: Any, stride: Any, element: Any) -> Any:
    """Two elements (from an even one on) of 16 keys for each of ``like``, for ``mix_step``."""
    result = _value_type(k, like)

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        where, step, at = args[2:]
        kind, lines = VF, 2
        if uses_dots(k):
            kind, lines, at = VI, 1, b.ashr(at, ir.Constant(I64, 1))
        found = []
        for line in range(lines):
            start = b.mul(b.add(at, ir.Constant(I64, line)), step)
            for j in range(len(like)):
                index = b.add(start, ir.Constant(I64, j * LANES))
                found.append(read(b, where, index, kind, 4))
        return as_tuple(context, b, result, found)

    return result(like, k, float32_pointer, types.int64, types.int64), generate


@emitted
def store_sums(ctx: Any, sums: Any, like: Any, out: Any, stride: Any) -> Any:
    """Writes rows of sums, as many vectors each as ``like`` has, to out, out + stride, ..."""
    width = len(like)

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for i in range(len(sums) // width):
            row = b.gep(args[2], [b.mul(args[3], ir.Constant(I64, i))])
            for j in range(width):
                value = b.extract_value(args[0], i * width + j)
                write(b, value, row, ir.Constant(I64, j * LANES), 4)
        return context.get_dummy_value()

    return types.void(sums, like, float32_pointer, types.int64), generate


@emitted
def settle_weights(ctx: Any, pointer: Any, out: Any, index: Any, weight: Any) -> Any:
    """Writes 16 weights in the form that products with the pointer's elements take.

    ``index`` counts weights from ``out``. Returns the weights as they will be used.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        where, at, value = args[1:]
        if not uses_dots(pointer):
            write(b, value, where, at, 4)
            return value
        half = round_words(b, value)
        write(b, half, b.bitcast(where, I16.as_pointer()), at, 2)
        return widen(b, half)

    return vector(pointer, float32_pointer, types.int64, vector), generate


def _value_type(pointer: Any, like: Any) -> Any:
    return types.UniTuple(*((words, len(like)) if uses_dots(pointer) else (vector, 2 * len(like))))


def _load_values(
    context: Any, b: Any, pointer: Any, like: Any, where: Any, tokens: list[Any], count: Any
) -> Any:
    """Of two tokens: words of one element of both, or else all of one, then of the other."""
    found: list[Any] = []
    for block in range(len(like) // 2):
        at = [b.add(token, ir.Constant(I64, block * PAIR)) for token in tokens]
        if uses_dots(pointer):
            x, y = (_words(b, where, index, count) for index in at)
            low, high = constant(I32, 0xFFFF), constant(I32, 0xFFFF0000)
            sixteen = constant(I32, 16)
            found.append(b.or_(b.and_(x, low), b.shl(y, sixteen)))
            found.append(b.or_(b.lshr(x, sixteen), b.and_(y, high)))
        else:
            found.append([_halves(b, pointer, where, index, count) for index in at])
    if not uses_dots(pointer):
        found = [half for token in range(2) for block in found for half in block[token]]
    return as_tuple(context, b, _value_type(pointer, like), found)


@emitted
def load_values(ctx: Any, like: Any, pointer: Any, first: Any, second: Any) -> Any:
    """16 elements for each of ``like``, at two indices, for ``mix_step``."""
    result = _value_type(pointer, like)

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _load_values(context, b, pointer, like, args[1], args[2:4], None)

    return result(like, pointer, types.int64, types.int64), generate


@emitted
def load_values_part(ctx: Any, like: Any, pointer: Any, first: Any, second: Any, count: Any) -> Any:
    """As ``load_values`` of the first ``count`` of 32 elements (an even number)."""
    result = _value_type(pointer, like)

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _load_values(context, b, pointer, like, args[1], args[2:4], args[4])

    return result(like, pointer, types.int64, types.int64, types.int64), generate


@emitted
def mix_step(ctx: Any, sums: Any, weights: Any, stride: Any, token: Any, values: Any) -> Any:
    """Adds weight times value of two tokens, from ``token`` (even) on, to the sums of n rows.

    A row's weights are at weights, weights + stride, ... as ``settle_weights`` wrote them. Scores
    come from the same step: queries in the place of weights, elements in that of tokens.
    """
    dots = values.dtype == words
    width = len(values) if dots else len(values) // 2
    n = len(sums) // width

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        acc = [b.extract_value(args[0], i) for i in range(n * width)]
        value = [b.extract_value(args[4], i) for i in range(len(values))]
        for i in range(n):
            row = b.gep(args[1], [b.mul(args[2], ir.Constant(I64, i))])
            if dots:
                word = b.ashr(args[3], ir.Constant(I64, 1))
                both = splat(b, b.load(b.gep(b.bitcast(row, I32.as_pointer()), [word])))
                for j in range(width):
                    acc[i * width + j] = dot_words(b, acc[i * width + j], both, value[j])
                continue
            for later in range(2):
                at = b.add(args[3], ir.Constant(I64, later))
                weight = splat(b, b.load(b.gep(row, [at])))
                for j in range(width):
                    x = value[later * width + j]
                    acc[i * width + j] = multiply_add(b, weight, x, acc[i * width + j])
        return as_tuple(context, b, sums, acc)

    return sums(sums, float32_pointer, types.int64, types.int64, values), generate


@emitted
def add_mixed(ctx: Any, sums: Any, like: Any, out: Any, stride: Any, scales: Any) -> Any:
    """``out = out * scale + sum`` of n rows at out, out + stride, ...; one scale for each.

    A row's sums are as many vectors as ``like`` has.
    """
    width = len(like)

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for i in range(len(sums) // width):
            row = b.gep(args[2], [b.mul(args[3], ir.Constant(I64, i))])
            scale = splat(b, b.load(b.gep(args[4], [ir.Constant(I64, i)])))
            for j in range(width):
                at = ir.Constant(I64, j * LANES)
                total = b.extract_value(args[0], i * width + j)
                write(b, multiply_add(b, read(b, row, at, VF, 4), scale, total), row, at, 4)
        return context.get_dummy_value()

    return types.void(sums, like, float32_pointer, types.int64, float32_pointer), generate
