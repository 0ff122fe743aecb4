"""Streams: pieces as they come, and readers that never wait for what will not come (C089)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import sapwood as sw
from sapwood.frontend_lang.runtime import Delta, Request


class Gated(sw.Scripted):
    """Gives its first word, and the rest only once the gate is open."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        self.gate = threading.Event()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        first = True
        async for delta in super().stream(request):
            yield delta
            if first:
                await asyncio.to_thread(self.gate.wait, 10)
            first = False


@sw.function
def two(s: sw.State) -> str:
    s += "Text: "
    s += sw.gen("a")
    s += sw.gen("b")
    return str(s["b"])


def test_pieces_come_before_the_end() -> None:
    runtime = Gated({"a": "one two three", "b": "four"})
    state = two.run(stream=True, backend=runtime)
    pieces = state.text_iter("a")
    assert next(pieces) == "one "
    whole = state.text_iter()
    assert [next(whole), next(whole)] == ["Text: ", "one "]
    runtime.gate.set()
    assert list(pieces) == ["two ", "three"]
    assert list(whole) == ["two ", "three", "four"]
    assert (state["b"], state.ret_value, state.error()) == ("four", "four", None)
    assert list(state.text_iter(var_name="a")) == ["one ", "two ", "three"]  # again, from the start


def test_without_a_stream_the_text_is_one_piece() -> None:
    state = two.run(backend=sw.Scripted({"a": "one two", "b": "three"}))
    assert list(state.text_iter("a")) == ["one two"]
    assert list(state.text_iter()) == ["Text: ", "one two", "three"]


def test_pieces_on_an_event_loop() -> None:
    async def main() -> None:
        runtime = Gated({"a": "one two", "b": "three"})
        state = await two.arun(stream=True, backend=runtime)
        got = []
        async for piece, meta in state.text_async_iter(var_name="a", return_meta_data=True):
            got.append((piece, bool(meta)))
            runtime.gate.set()
        assert [piece for piece, _ in got] == ["one ", "two"]
        assert [piece async for piece in state] == ["Text: ", "one ", "two", "three"]
        assert await state.aret_value() == "three"

    asyncio.run(main())


def failing(where: str) -> tuple[Any, Any]:
    """A program that fails somewhere, and its runtime."""

    @sw.function
    def program(s: sw.State) -> None:
        if where == "code before":
            raise LookupError("in code")
        s += sw.gen("a")
        s += inner(s) if where == "inner" else ""
        s += sw.gen("b")
        if where == "reads":
            s["never"]

    @sw.function
    def inner(s: sw.State) -> str:
        raise LookupError("in code")

    if where == "connection":
        return program, sw.Server("http://127.0.0.1:9")
    script = {"a": "A", "b": ConnectionError("gone") if where == "second gen" else "B"}
    return program, sw.Scripted(script)


@pytest.mark.parametrize(
    ("where", "name", "error"),
    [
        ("nowhere", "never", KeyError),
        ("code before", "a", LookupError),
        ("code before", None, LookupError),
        ("inner", "b", LookupError),
        ("reads", "never", KeyError),
        ("second gen", "b", ConnectionError),
        ("second gen", None, ConnectionError),
        ("second gen", "never", ConnectionError),
        ("connection", "a", ConnectionError),
        ("connection", None, ConnectionError),
    ],
)
def test_c089_readers_get_the_error(where: str, name: str | None, error: Any) -> None:
    """C089: sync and async iterators, and ``s[name]``, in a streaming run."""
    program, runtime = failing(where)
    with pytest.raises(error):
        list(program.run(stream=True, backend=runtime).text_iter(name))
    if name is not None:
        with pytest.raises(error):
            program.run(stream=True, backend=runtime)[name]
    known = program.run(stream=True, backend=runtime).error()
    assert (known is None) == (where == "nowhere")

    async def main() -> None:
        state = await program.arun(stream=True, backend=runtime)
        with pytest.raises(error):
            async for _ in state.text_async_iter(name):
                pass

    asyncio.run(asyncio.wait_for(main(), 10))


def test_c089_threads_exit() -> None:
    """C089: however a streaming run ends, and whether it is read or not."""
    before = {thread.name for thread in threading.enumerate()}
    for where in ("nowhere", "code before", "inner", "reads", "second gen", "connection"):
        program, runtime = failing(where)
        program.run(stream=True, backend=runtime).error()
        program.run(stream=True, backend=runtime)
    end = time.monotonic() + 10
    while left := [t.name for t in threading.enumerate() if t.name == "sapwood-program"]:
        assert time.monotonic() < end, left
        time.sleep(0.01)
    assert {thread.name for thread in threading.enumerate()} <= {*before, "sapwood-programs"}


def test_c089_others_run_while_a_reader_waits() -> None:
    """C089: the loop of an async reader goes on while its pieces are not there."""
    runtime = Gated({"a": "one two", "b": "three"})

    async def main() -> list[str]:
        state = two.run(stream=True, backend=runtime)
        reading = asyncio.create_task(collected(state))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not reading.done()
        runtime.gate.set()
        return await reading

    async def collected(state: Any) -> list[str]:
        return [piece async for piece in state.text_async_iter("a")]

    assert asyncio.run(asyncio.wait_for(main(), 10)) == ["one ", "two"]


def test_c089_a_loop_is_never_blocked() -> None:
    """C089: reading what is not there from the loop that works for it is refused."""

    @sw.function
    async def program(s: sw.State) -> str:
        s += sw.gen("a")
        with pytest.raises(RuntimeError, match="aget"):
            s["a"]
        with pytest.raises(RuntimeError, match="atext"):
            s.text()
        with pytest.raises(RuntimeError, match="text_async_iter"):
            list(s.text_iter("a"))
        with pytest.raises(KeyError):
            await s.aget("never")
        return str(await s.aget("a"))

    runtime = sw.Scripted({"a": "A"}, delay=0.01)
    assert asyncio.run(program.arun(backend=runtime)).ret_value == "A"
    assert program.run(backend=runtime).ret_value == "A"
    assert program.run(backend=runtime, stream=True).ret_value == "A"
