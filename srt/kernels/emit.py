"""Pieces of LLVM IR, and the types, that the operations of ``words``, ``simd`` and ``blocks`` emit.

numba has no vector type, but a type of one's own may be backed by any LLVM type, and LLVM splits
``<16 x float>`` into whatever the processor has (one AVX-512 register, two of AVX, four of NEON).
In all that follows ``b`` is an ``llvmlite.ir.IRBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core.codegen import get_host_cpu_features
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

LANES = 16
PAIR = 2 * LANES

F32, I1, I8, I16, I32, I64 = ir.FloatType(), *(ir.IntType(n) for n in (1, 8, 16, 32, 64))
VF, VI, VH, VB = (ir.VectorType(t, LANES) for t in (F32, I32, I16, I8))

float32_pointer = types.CPointer(types.float32)
bfloat16_pointer = types.CPointer(types.uint16)
byte_pointer = types.CPointer(types.uint8)


def emitted(function: Callable[..., Any]) -> Any:
    """Makes an operation of a typing function that returns its signature and its generator."""
    return intrinsic(function)


class VectorType(types.Type):  # type: ignore[misc]  # numba has no types
    """16 float32 values."""

    def __init__(self) -> None:
        super().__init__(name="Vector16f")


vector = VectorType()


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]  # likewise
    def __init__(self, manager: Any, front_end_type: Any) -> None:
        super().__init__(manager, front_end_type, VF)


class WordsType(types.Type):  # type: ignore[misc]  # likewise
    """16 words of two bfloat16 each."""

    def __init__(self) -> None:
        super().__init__(name="Words16")


words = WordsType()


@register_model(WordsType)
class _WordsModel(models.PrimitiveModel):  # type: ignore[misc]  # likewise
    def __init__(self, manager: Any, front_end_type: Any) -> None:
        super().__init__(manager, front_end_type, VI)


class _BFloat16(ir.Type):  # type: ignore[misc]  # likewise
    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


@cache
def has_dots() -> bool:
    """Whether the processor (or the one that ``NUMBA_CPU_FEATURES`` names) has AVX512-BF16."""
    features = numba.config.CPU_FEATURES or get_host_cpu_features()
    return {"+avx512bf16", "+avx512f"} <= set(features.split(","))


# Pieces of LLVM IR.


def round_words(b: Any, value: Any) -> Any:
    """float32 -> bits of the nearest bfloat16, ties to even (AVX512-BF16)."""
    kind = ir.VectorType(_BFloat16(), LANES)
    return b.bitcast(call_llvm(b, "llvm.x86.avx512bf16.cvtneps2bf16.512", kind, value), VH)


def dot_words(b: Any, total: Any, x: Any, y: Any) -> Any:
    """Adds the products of both bfloat16 of each word to float32 (AVX512-BF16)."""
    kind = ir.VectorType(_BFloat16(), PAIR)
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    return call_llvm(b, name, VF, total, b.bitcast(x, kind), b.bitcast(y, kind))


def constant(element: ir.Type, value: float) -> ir.Constant:
    return ir.Constant(ir.VectorType(element, LANES), [value] * LANES)


def splat(b: Any, scalar: Any) -> Any:
    kind = ir.VectorType(scalar.type, LANES)
    lane = b.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
    return b.shuffle_vector(lane, ir.Constant(kind, ir.Undefined), constant(I32, 0))


def shuffle(b: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def call_llvm(b: Any, name: str, result: ir.Type, *args: Any) -> Any:
    signature = ir.FunctionType(result, [a.type for a in args])
    module = b.module
    function = module.globals.get(name) or ir.Function(module, signature, name)
    return b.call(function, args)


def multiply_add(b: Any, x: Any, y: Any, z: Any) -> Any:
    return call_llvm(b, "llvm.fma.v16f32", VF, x, y, z)


def place(b: Any, pointer: Any, index: Any, kind: ir.Type) -> Any:
    return b.bitcast(b.gep(pointer, [index]), kind.as_pointer())


def read(b: Any, pointer: Any, index: Any, kind: ir.Type, align: int) -> Any:
    value = b.load(place(b, pointer, index, kind))
    value.align = align
    return value


def write(b: Any, value: Any, pointer: Any, index: Any, align: int) -> None:
    b.store(value, place(b, pointer, index, value.type)).align = align


def lanes_below(b: Any, count: Any) -> Any:
    lane = ir.Constant(VI, list(range(LANES)))
    return b.icmp_signed("<", lane, splat(b, b.trunc(count, I32)))


def read_part(b: Any, pointer: Any, index: Any, kind: Any, align: int, count: Any) -> Any:
    name = f"llvm.masked.load.v16{'f32' if kind is VF else f'i{kind.element.width}'}.p0"
    zero = ir.Constant(kind, None)
    where = place(b, pointer, index, kind)
    return call_llvm(b, name, kind, where, ir.Constant(I32, align), lanes_below(b, count), zero)


def write_part(b: Any, value: Any, pointer: Any, index: Any, align: int, count: Any) -> None:
    kind = value.type
    name = f"llvm.masked.store.v16{'f32' if kind == VF else f'i{kind.element.width}'}.p0"
    where = place(b, pointer, index, kind)
    call_llvm(b, name, ir.VoidType(), value, where, ir.Constant(I32, align), lanes_below(b, count))


def widen(b: Any, half: Any) -> Any:
    return b.bitcast(b.shl(b.zext(half, VI), constant(I32, 16)), VF)


def rounded(b: Any, value: Any) -> Any:
    """Bits of ``value`` whose upper halves are the nearest bfloat16, ties to even."""
    bits = b.bitcast(value, VI)
    odd = b.and_(b.lshr(bits, constant(I32, 16)), constant(I32, 1))
    near = b.add(bits, b.add(odd, constant(I32, 0x7FFF)))
    return b.select(b.fcmp_unordered("uno", value, value), constant(I32, 0x7FC00000), near)


def narrow(b: Any, value: Any) -> Any:
    return b.trunc(b.lshr(rounded(b, value), constant(I32, 16)), VH)


def unpack(b: Any, words: Any) -> list[Any]:
    even = b.shl(words, constant(I32, 16))
    odd = b.and_(words, constant(I32, 0xFFFF0000))
    return [b.bitcast(even, VF), b.bitcast(odd, VF)]


def pack(b: Any, even: Any, odd: Any) -> Any:
    low = b.lshr(rounded(b, even), constant(I32, 16))
    return b.or_(low, b.and_(rounded(b, odd), constant(I32, 0xFFFF0000)))


def is_float32(pointer: Any) -> bool:
    return bool(pointer.dtype == types.float32)


def uses_dots(pointer: Any) -> bool:
    """Whether products of what the pointer points to are taken by ``dot_words``."""
    return not is_float32(pointer) and has_dots()


def as_tuple(context: Any, b: Any, kind: Any, values: list[Any]) -> Any:
    return context.make_tuple(b, kind, values)
