"""What type checkers see: checked by mypy and pyright, never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import sapwood as sw
from sapwood.frontend_lang.runtime import Answer


@dataclass
class City:
    name: str


@sw.function
def sync(s: sw.State, question: str, times: int = 1) -> int:
    s += "x" + sw.gen("x", max_tokens=5) + sw.select("y", ["a"]) + "z"
    s += sw.user("u") + sw.assistant(sw.gen_int("n", 3))
    forks = s.fork(2)
    forks += lambda i: f"{i}" + sw.gen("z", temperature=0.5, seed=1, json_schema=City)
    forks += [sw.gen("w"), "text"]
    for branch in forks:
        assert_type(branch, sw.State)
    assert_type(forks[0], sw.State)
    forks.join("gather_variable")
    with s.copy() as other:
        assert_type(other, sw.State)
    with s.user(), s.var_scope("v"):
        s += "inside"
    assert_type(s.text(), str)
    assert_type(s.messages(), list[dict[str, Any]])
    assert_type(s.parsed("z", City), City)
    assert_type(s.error(), BaseException | None)
    return len(s["x"])


@sw.function
async def native(s: sw.State, question: str) -> str:
    s += question + sw.gen("x")
    assert_type(await s.atext(), str)
    assert_type(await s.aparsed("x", City), City)
    async for piece in s:
        assert_type(piece, str)
    return str(await s.aget("x"))


@sw.function
def untyped(s, question):  # type: ignore[no-untyped-def]
    s += question


@sw.function
def open_ended(s: sw.State, prefix: str, **options: Any) -> int:
    s += prefix + sw.gen("x", **options)
    return 1


@sw.function
async def open_ended_native(s: sw.State, **options: Any) -> int:
    return 1


def uses(runtime: sw.Runtime) -> None:
    assert_type(open_ended.run("x", top_p=0.5).ret_value, int)
    assert_type(open_ended_native.run(top_p=0.5).ret_value, int)
    state = sync.run("q", times=2, temperature=0.0, backend=runtime)
    assert_type(state, sw.Outcome[int])
    assert_type(state.ret_value, int)
    assert_type(native.run("q").ret_value, str)
    assert_type(sync.run_batch([("q",)]), list[sw.Outcome[int]])
    assert_type(sync.bind(times=3).run("q").ret_value, int)
    for piece in state.text_iter("x"):
        assert_type(piece, str)
    assert_type(str(sw.trace(sync)), str)


async def uses_async() -> None:
    state = await native.arun("q", stream=True)
    assert_type(state, sw.Outcome[str])
    assert_type(await state.aret_value(), str)
    assert_type(await native.arun_batch([("q",)]), list[sw.Outcome[str]])


def runtimes() -> list[sw.Runtime]:
    """Each is one by its shape."""
    return [
        sw.Scripted([Answer(text="a"), "b"]),
        sw.Server("http://x"),
        sw.OpenAI("m"),
        sw.RuntimeEndpoint("http://x"),
    ]


def wrong() -> None:
    """Each line is an error; checkers complain of ignores that are not needed."""
    sw.gen("x", temperature="hot")  # type: ignore[arg-type]
    sw.gen("x", tempratur=1.0)  # type: ignore[call-arg]
    sw.select("x", [1])  # type: ignore[list-item]
    sw.gen_int("x", top_p="all")  # type: ignore[arg-type]
    sw.function(5)  # type: ignore[call-overload]
