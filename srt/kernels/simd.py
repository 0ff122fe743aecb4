"""Vectors of 16 float32 for numba: explicit SIMD, where automatic vectorisation is left to chance.

numba has no vector type, but a type of one's own may be backed by any LLVM type, and LLVM splits
``<16 x float>`` into whatever the processor has (one AVX-512 register, two of AVX, four of NEON).
Memory is addressed by typed pointers made from ``tensor.data_ptr()``: ``CPointer(float32)``, or
``CPointer(uint16)`` which here always means bfloat16. Functions that are generic in the element
type are compiled once for each. Arithmetic is always float32; a store to bfloat16 rounds to the
nearest, ties to even, and keeps NaN.

A *pair* is 32 consecutive elements as two vectors. Of bfloat16 they are the elements at even and at
odd indices (unpacking 32-bit words takes one shift and one mask, half of what the natural order
takes); of float32 the first and the last 16. The order within a pair is thus private: what is loaded
as pairs may only meet what was loaded as pairs of the same element type.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

LANES = 16
PAIR = 2 * LANES

_F32, _I1, _I16, _I32, _I64 = ir.FloatType(), *(ir.IntType(n) for n in (1, 16, 32, 64))
_VF, _VI, _VH = (ir.VectorType(t, LANES) for t in (_F32, _I32, _I16))
_REASSOCIATE = ("contract", "reassoc", "nsz")  # never nnan or ninf: NaN and -inf mean something

float32_pointer = types.CPointer(types.float32)
bfloat16_pointer = types.CPointer(types.uint16)


class VectorType(types.Type):
    """16 float32 values."""

    def __init__(self) -> None:
        super().__init__(name="Vector16f")


vector = VectorType()


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, front_end_type: Any) -> None:
        super().__init__(manager, front_end_type, _VF)


# Pieces of LLVM IR.


def _constant(element: ir.Type, value: float) -> ir.Constant:
    return ir.Constant(ir.VectorType(element, LANES), [value] * LANES)


def _splat(b: Any, scalar: Any) -> Any:
    kind = ir.VectorType(scalar.type, LANES)
    lane = b.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return b.shuffle_vector(lane, ir.Constant(kind, ir.Undefined), _constant(_I32, 0))


def _shuffle(b: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes))


def _call(b: Any, name: str, result: ir.Type, *args: Any) -> Any:
    signature = ir.FunctionType(result, [a.type for a in args])
    module = b.module
    function = module.globals.get(name) or ir.Function(module, signature, name)
    return b.call(function, args)


def _fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    return _call(b, "llvm.fma.v16f32", _VF, x, y, z)


def _at(b: Any, pointer: Any, index: Any, kind: ir.Type) -> Any:
    return b.bitcast(b.gep(pointer, [index]), kind.as_pointer())


def _read(b: Any, pointer: Any, index: Any, kind: ir.Type, align: int) -> Any:
    value = b.load(_at(b, pointer, index, kind))
    value.align = align
    return value


def _write(b: Any, value: Any, pointer: Any, index: Any, align: int) -> None:
    b.store(value, _at(b, pointer, index, value.type)).align = align


def _lanes_below(b: Any, count: Any) -> Any:
    lane = ir.Constant(_VI, list(range(LANES)))
    return b.icmp_signed("<", lane, _splat(b, b.trunc(count, _I32)))


def _read_part(b: Any, pointer: Any, index: Any, kind: Any, align: int, count: Any) -> Any:
    name = f"llvm.masked.load.v16{'f32' if kind is _VF else f'i{kind.element.width}'}.p0"
    zero = ir.Constant(kind, None)
    where = _at(b, pointer, index, kind)
    return _call(b, name, kind, where, ir.Constant(_I32, align), _lanes_below(b, count), zero)


def _write_part(b: Any, value: Any, pointer: Any, index: Any, align: int, count: Any) -> None:
    kind = value.type
    name = f"llvm.masked.store.v16{'f32' if kind == _VF else f'i{kind.element.width}'}.p0"
    where = _at(b, pointer, index, kind)
    _call(b, name, ir.VoidType(), value, where, ir.Constant(_I32, align), _lanes_below(b, count))


def _widen(b: Any, half: Any) -> Any:
    return b.bitcast(b.shl(b.zext(half, _VI), _constant(_I32, 16)), _VF)


def _rounded(b: Any, value: Any) -> Any:
    """Bits of ``value`` whose upper halves are the nearest bfloat16, ties to even."""
    bits = b.bitcast(value, _VI)
    odd = b.and_(b.lshr(bits, _constant(_I32, 16)), _constant(_I32, 1))
    near = b.add(bits, b.add(odd, _constant(_I32, 0x7FFF)))
    return b.select(b.fcmp_unordered("uno", value, value), _constant(_I32, 0x7FC00000), near)


def _narrow(b: Any, value: Any) -> Any:
    return b.trunc(b.lshr(_rounded(b, value), _constant(_I32, 16)), _VH)


def _unpack(b: Any, words: Any) -> list[Any]:
    even = b.shl(words, _constant(_I32, 16))
    odd = b.and_(words, _constant(_I32, 0xFFFF0000))
    return [b.bitcast(even, _VF), b.bitcast(odd, _VF)]


def _pack(b: Any, even: Any, odd: Any) -> Any:
    low = b.lshr(_rounded(b, even), _constant(_I32, 16))
    return b.or_(low, b.and_(_rounded(b, odd), _constant(_I32, 0xFFFF0000)))


def _is_float32(pointer: Any) -> bool:
    return bool(pointer.dtype == types.float32)


def _pair_type() -> Any:
    return types.UniTuple(vector, 2)


# Addresses.


@intrinsic
def as_float32(ctx: Any, address: Any) -> Any:
    """int64 address -> pointer to float32."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.inttoptr(args[0], _F32.as_pointer())

    return float32_pointer(types.int64), generate


@intrinsic
def as_bfloat16(ctx: Any, address: Any) -> Any:
    """int64 address -> pointer to bfloat16."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.inttoptr(args[0], _I16.as_pointer())

    return bfloat16_pointer(types.int64), generate


@intrinsic
def advance(ctx: Any, pointer: Any, elements: Any) -> Any:
    """The pointer that many elements further on."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), generate


@intrinsic
def word32(ctx: Any, address: Any, index: Any) -> Any:
    """``int32[index]`` at an address."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        where = b.gep(b.inttoptr(args[0], _I32.as_pointer()), [args[1]])
        return b.sext(b.load(where), _I64)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def word64(ctx: Any, address: Any, index: Any) -> Any:
    """``int64[index]`` at an address."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load(b.gep(b.inttoptr(args[0], _I64.as_pointer()), [args[1]]))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def set_word64(ctx: Any, address: Any, index: Any, value: Any) -> Any:
    """Writes ``int64[index]`` at an address."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.store(args[2], b.gep(b.inttoptr(args[0], _I64.as_pointer()), [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def take_ticket(ctx: Any, address: Any, index: Any) -> Any:
    """Adds one to ``int64[index]`` at an address, atomically; returns what it was."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        where = b.gep(b.inttoptr(args[0], _I64.as_pointer()), [args[1]])
        return b.atomic_rmw("add", where, ir.Constant(_I64, 1), "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def fork(ctx: Any, parallel: Any, worker: Any, argument: Any, threads: Any) -> Any:
    """``GOMP_parallel(worker, argument, threads, 0)``, with both functions as addresses."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, byte, _I32, _I32]).as_pointer()
        where, data = b.inttoptr(args[1], byte), b.inttoptr(args[2], byte)
        count, flags = b.trunc(args[3], _I32), ir.Constant(_I32, 0)
        b.call(b.inttoptr(args[0], kind), [where, data, count, flags])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@intrinsic
def invoke(ctx: Any, worker: Any, argument: Any) -> Any:
    """``worker(argument)``, with the C function as an address."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64]).as_pointer()
        b.call(b.inttoptr(args[0], kind), [args[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


# Loads and stores.


@intrinsic
def load(ctx: Any, pointer: Any, index: Any) -> Any:
    """16 elements in natural order, as a vector."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if _is_float32(pointer):
            return _read(b, args[0], args[1], _VF, 4)
        return _widen(b, _read(b, args[0], args[1], _VH, 2))

    return vector(pointer, types.int64), generate


@intrinsic
def load_part(ctx: Any, pointer: Any, index: Any, count: Any) -> Any:
    """As ``load`` with the first ``count`` elements; the other lanes are zero."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if _is_float32(pointer):
            return _read_part(b, args[0], args[1], _VF, 4, args[2])
        return _widen(b, _read_part(b, args[0], args[1], _VH, 2, args[2]))

    return vector(pointer, types.int64, types.int64), generate


@intrinsic
def store(ctx: Any, pointer: Any, index: Any, value: Any) -> Any:
    """Writes 16 elements."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if _is_float32(pointer):
            _write(b, args[2], args[0], args[1], 4)
        else:
            _write(b, _narrow(b, args[2]), args[0], args[1], 2)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vector), generate


@intrinsic
def store_part(ctx: Any, pointer: Any, index: Any, value: Any, count: Any) -> Any:
    """Writes the first ``count`` elements."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if _is_float32(pointer):
            _write_part(b, args[2], args[0], args[1], 4, args[3])
        else:
            _write_part(b, _narrow(b, args[2]), args[0], args[1], 2, args[3])
        return context.get_dummy_value()

    return types.void(pointer, types.int64, vector, types.int64), generate


def _tuple(context: Any, b: Any, kind: Any, values: list[Any]) -> Any:
    return context.make_tuple(b, kind, values)


@intrinsic
def load_pair(ctx: Any, pointer: Any, index: Any) -> Any:
    """32 elements as a pair (see the module)."""
    result = _pair_type()

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        p, i = args
        if _is_float32(pointer):
            later = b.add(i, ir.Constant(_I64, LANES))
            halves = [_read(b, p, i, _VF, 4), _read(b, p, later, _VF, 4)]
        else:
            halves = _unpack(b, _read(b, p, i, _VI, 2))
        return _tuple(context, b, result, halves)

    return result(pointer, types.int64), generate


@intrinsic
def load_pair_part(ctx: Any, pointer: Any, index: Any, count: Any) -> Any:
    """As ``load_pair`` with the first ``count`` elements (an even number); the others are zero."""
    result = _pair_type()

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        p, i, n = args
        if _is_float32(pointer):
            step = ir.Constant(_I64, LANES)
            later, rest = b.add(i, step), b.sub(n, step)
            halves = [_read_part(b, p, i, _VF, 4, n), _read_part(b, p, later, _VF, 4, rest)]
        else:
            words = b.ashr(n, ir.Constant(_I64, 1))
            halves = _unpack(b, _read_part(b, p, i, _VI, 2, words))
        return _tuple(context, b, result, halves)

    return result(pointer, types.int64, types.int64), generate


@intrinsic
def store_pair_part(ctx: Any, pointer: Any, index: Any, pair: Any, count: Any) -> Any:
    """Writes the first ``count`` (an even number) of a pair's 32 elements."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        p, i, both, n = args
        first, second = b.extract_value(both, 0), b.extract_value(both, 1)
        if _is_float32(pointer):
            step = ir.Constant(_I64, LANES)
            _write_part(b, first, p, i, 4, n)
            _write_part(b, second, p, b.add(i, step), 4, b.sub(n, step))
        else:
            _write_part(b, _pack(b, first, second), p, i, 2, b.ashr(n, ir.Constant(_I64, 1)))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, pair, types.int64), generate


@intrinsic
def peek(ctx: Any, pointer: Any, index: Any) -> Any:
    """One float32."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load(b.gep(args[0], [args[1]]))

    return types.float32(float32_pointer, types.int64), generate


@intrinsic
def poke(ctx: Any, pointer: Any, index: Any, value: Any) -> Any:
    """Writes one float32."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.store(args[2], b.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(float32_pointer, types.int64, types.float32), generate


# Arithmetic.


@intrinsic
def broadcast(ctx: Any, value: Any) -> Any:
    """All lanes the same."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _splat(b, args[0])

    return vector(types.float32), generate


@intrinsic
def add(ctx: Any, x: Any, y: Any) -> Any:
    """x + y"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.fadd(*args)

    return vector(vector, vector), generate


@intrinsic
def mul(ctx: Any, x: Any, y: Any) -> Any:
    """x * y"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.fmul(*args)

    return vector(vector, vector), generate


@intrinsic
def div(ctx: Any, x: Any, y: Any) -> Any:
    """x / y"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.fdiv(*args)

    return vector(vector, vector), generate


@intrinsic
def fma(ctx: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once"""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _fma(b, *args)

    return vector(vector, vector, vector), generate


@intrinsic
def largest(ctx: Any, x: Any, y: Any) -> Any:
    """The larger in each lane; a NaN gives way to a number."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _call(b, "llvm.maxnum.v16f32", _VF, *args)

    return vector(vector, vector), generate


@intrinsic
def keep_first(ctx: Any, x: Any, count: Any) -> Any:
    """The first ``count`` lanes (any number); the others become -inf."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.select(_lanes_below(b, args[1]), args[0], _constant(_F32, float("-inf")))

    return vector(vector, types.int64), generate


@intrinsic
def sum_lanes(ctx: Any, x: Any) -> Any:
    """The sum of the lanes, added as a tree."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        for width in (8, 4, 2, 1):
            low = _shuffle(b, value, value, list(range(width)))
            value = b.fadd(low, _shuffle(b, value, value, list(range(width, 2 * width))))
        return b.extract_element(value, ir.Constant(_I32, 0))

    return types.float32(vector), generate


@intrinsic
def max_lanes(ctx: Any, x: Any) -> Any:
    """The largest lane; NaN only if all are."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        for width in (8, 4, 2, 1):
            low = _shuffle(b, value, value, list(range(width)))
            high = _shuffle(b, value, value, list(range(width, 2 * width)))
            value = _call(b, f"llvm.maxnum.v{width}f32", low.type, low, high)
        return b.extract_element(value, ir.Constant(_I32, 0))

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


@intrinsic
def exp2(ctx: Any, x: Any) -> Any:
    """2**x; 0 below -126 (also for -inf), inf above 128, NaN for NaN."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        # Adding 1.5 * 2**23 rounds to an integer and leaves it in the low bits of the sum.
        value, magic = args[0], _constant(_F32, 12582912.0)
        shifted = b.fadd(value, magic)
        part = b.fsub(value, b.fsub(shifted, magic))
        poly = _constant(_F32, _EXP2[-1])
        for coefficient in reversed(_EXP2[:-1]):
            poly = _fma(b, poly, part, _constant(_F32, coefficient))
        power = b.shl(b.bitcast(shifted, _VI), _constant(_I32, 23))
        result = b.bitcast(b.add(b.bitcast(poly, _VI), power), _VF)
        low = b.fcmp_ordered("<", value, _constant(_F32, -126.0))
        high = b.fcmp_ordered(">=", value, _constant(_F32, 128.0))
        result = b.select(low, _constant(_F32, 0.0), result)
        result = b.select(high, _constant(_F32, float("inf")), result)
        return b.select(b.fcmp_unordered("uno", value, value), value, result)

    return vector(vector), generate


# Blocks of a small matrix product, with the sums in registers.


@intrinsic
def zeros(ctx: Any, like: Any) -> Any:
    """As many zero vectors as ``like`` is a tuple of anything."""
    result = types.UniTuple(vector, len(like))

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _tuple(context, b, result, [_constant(_F32, 0.0)] * len(like))

    return result(like), generate


@intrinsic
def score_step(ctx: Any, sums: Any, q: Any, q_stride: Any, k0: Any, k1: Any, k2: Any, k3: Any) -> Any:
    """Adds products of n query pairs (at q, q + stride, ...) and 4 key pairs to 4n sums."""
    n = len(sums) // 4

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        acc = [b.extract_value(args[0], i) for i in range(4 * n)]
        keys = [[b.extract_value(k, half) for half in range(2)] for k in args[3:]]
        for i in range(n):
            row = b.gep(args[1], [b.mul(args[2], ir.Constant(_I64, i))])
            for half in range(2):
                query = _read(b, row, ir.Constant(_I64, half * LANES), _VF, 4)
                for j in range(4):
                    acc[4 * i + j] = _fma(b, query, keys[j][half], acc[4 * i + j])
        return _tuple(context, b, sums, acc)

    return sums(sums, float32_pointer, types.int64, k0, k1, k2, k3), generate


@intrinsic
def store_scores(ctx: Any, sums: Any, out: Any, out_stride: Any) -> Any:
    """Adds up the lanes of 4n sums and writes 4 numbers to each of out, out + stride, ..."""
    n = len(sums) // 4

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for i in range(n):
            four = [b.extract_value(args[0], 4 * i + j) for j in range(4)]
            row = b.gep(args[1], [b.mul(args[2], ir.Constant(_I64, i))])
            _write(b, _fold4(b, four), row, ir.Constant(_I64, 0), 4)
        return context.get_dummy_value()

    return types.void(sums, float32_pointer, types.int64), generate


def _fold4(b: Any, x: list[Any]) -> Any:
    """Four vectors of 16 -> one vector of their four sums, by a tree of shuffles within 128 bits."""
    lows = [4 * quarter for quarter in range(4)]

    def weave(a: Any, c: Any, first: list[int], second: list[int]) -> Any:
        left = [base + i for base in lows for i in first]
        right = [base + i for base in lows for i in second]
        return b.fadd(_shuffle(b, a, c, left), _shuffle(b, a, c, right))

    # Within each quarter: (a0+a2, c0+c2, a1+a3, c1+c3), then the same over the two results.
    ac = weave(x[0], x[1], [0, 16, 1, 17], [2, 18, 3, 19])
    eg = weave(x[2], x[3], [0, 16, 1, 17], [2, 18, 3, 19])
    sums = weave(ac, eg, [0, 1, 16, 17], [2, 3, 18, 19])
    half = b.fadd(_shuffle(b, sums, sums, [*range(8)]), _shuffle(b, sums, sums, [*range(8, 16)]))
    return b.fadd(_shuffle(b, half, half, [*range(4)]), _shuffle(b, half, half, [*range(4, 8)]))


@intrinsic
def mix_step(ctx: Any, sums: Any, weights: Any, stride: Any, value: Any) -> Any:
    """Adds weight times a value pair to n pairs of sums; weights at weights, weights + stride, ..."""
    n = len(sums) // 2

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        acc = [b.extract_value(args[0], i) for i in range(2 * n)]
        halves = [b.extract_value(args[3], half) for half in range(2)]
        for i in range(n):
            where = b.gep(args[1], [b.mul(args[2], ir.Constant(_I64, i))])
            weight = _splat(b, b.load(where))
            for half in range(2):
                acc[2 * i + half] = _fma(b, weight, halves[half], acc[2 * i + half])
        return _tuple(context, b, sums, acc)

    return sums(sums, float32_pointer, types.int64, value), generate


@intrinsic
def add_mixed(ctx: Any, sums: Any, out: Any, stride: Any, scales: Any) -> Any:
    """``out = out * scale + sum`` for n pairs at out, out + stride, ...; one scale for each."""
    n = len(sums) // 2

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        for i in range(n):
            row = b.gep(args[1], [b.mul(args[2], ir.Constant(_I64, i))])
            scale = _splat(b, b.load(b.gep(args[3], [ir.Constant(_I64, i)])))
            for half in range(2):
                at = ir.Constant(_I64, half * LANES)
                total = b.extract_value(args[0], 2 * i + half)
                _write(b, _fma(b, _read(b, row, at, _VF, 4), scale, total), row, at, 4)
        return context.get_dummy_value()

    return types.void(sums, float32_pointer, types.int64, float32_pointer), generate
