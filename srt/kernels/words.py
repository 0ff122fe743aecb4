"""Addresses, numbers in memory, tickets and threads: what kernels need of plain scalars.

Memory is addressed by typed pointers made from ``tensor.data_ptr()``: ``CPointer(float32)``, or
``CPointer(uint16)`` which here always means bfloat16. Job words are read at plain int64 addresses.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from .emit import (
    F32,
    I8,
    I16,
    I32,
    I64,
    bfloat16_pointer,
    byte_pointer,
    call_llvm,
    emitted,
    float32_pointer,
    place,
)


@emitted
def as_float32(ctx: Any, address: Any) -> Any:
    """int64 address -> pointer to float32."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.inttoptr(args[0], F32.as_pointer())

    return float32_pointer(types.int64), generate


@emitted
def as_bfloat16(ctx: Any, address: Any) -> Any:
    """int64 address -> pointer to bfloat16."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.inttoptr(args[0], I16.as_pointer())

    return bfloat16_pointer(types.int64), generate


@emitted
def as_bytes(ctx: Any, address: Any) -> Any:
    """int64 address -> pointer to bytes."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.inttoptr(args[0], I8.as_pointer())

    return byte_pointer(types.int64), generate


@emitted
def advance(ctx: Any, pointer: Any, elements: Any) -> Any:
    """The pointer that many elements further on."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), generate


@emitted
def word32(ctx: Any, address: Any, index: Any) -> Any:
    """``int32[index]`` at an address."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        where = b.gep(b.inttoptr(args[0], I32.as_pointer()), [args[1]])
        return b.sext(b.load(where), I64)

    return types.int64(types.int64, types.int64), generate


@emitted
def word64(ctx: Any, address: Any, index: Any) -> Any:
    """``int64[index]`` at an address."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load(b.gep(b.inttoptr(args[0], I64.as_pointer()), [args[1]]))

    return types.int64(types.int64, types.int64), generate


@emitted
def set_word64(ctx: Any, address: Any, index: Any, value: Any) -> Any:
    """Writes ``int64[index]`` at an address."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.store(args[2], b.gep(b.inttoptr(args[0], I64.as_pointer()), [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@emitted
def take_ticket(ctx: Any, address: Any, index: Any) -> Any:
    """Adds one to ``int64[index]`` at an address, atomically; returns what it was."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        where = b.gep(b.inttoptr(args[0], I64.as_pointer()), [args[1]])
        return b.atomic_rmw("add", where, ir.Constant(I64, 1), "seq_cst")

    return types.int64(types.int64, types.int64), generate


@emitted
def fork(ctx: Any, parallel: Any, worker: Any, argument: Any, threads: Any) -> Any:
    """``GOMP_parallel(worker, argument, threads, 0)``, with both functions as addresses."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, byte, I32, I32]).as_pointer()
        where, data = b.inttoptr(args[1], byte), b.inttoptr(args[2], byte)
        count, flags = b.trunc(args[3], I32), ir.Constant(I32, 0)
        b.call(b.inttoptr(args[0], kind), [where, data, count, flags])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@emitted
def invoke(ctx: Any, worker: Any, argument: Any) -> Any:
    """``worker(argument)``, with the C function as an address."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64]).as_pointer()
        b.call(b.inttoptr(args[0], kind), [args[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@emitted
def prefetch(ctx: Any, pointer: Any, index: Any) -> Any:
    """Asks for the cache line of an element, for reading, into the second-level cache."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        where = place(b, args[0], args[1], ir.IntType(8))
        read, level2, data = (ir.Constant(I32, value) for value in (0, 2, 1))
        call_llvm(b, "llvm.prefetch.p0", ir.VoidType(), where, read, level2, data)
        return context.get_dummy_value()

    return types.void(pointer, types.int64), generate


@emitted
def peek(ctx: Any, pointer: Any, index: Any) -> Any:
    """One float32."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load(b.gep(args[0], [args[1]]))

    return types.float32(float32_pointer, types.int64), generate


@emitted
def poke(ctx: Any, pointer: Any, index: Any, value: Any) -> Any:
    """Writes one float32."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.store(args[2], b.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(float32_pointer, types.int64, types.float32), generate
