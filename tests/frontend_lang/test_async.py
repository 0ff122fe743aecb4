"""``async def`` programs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import sapwood as sw
from sapwood.frontend_lang.runtime import Request


@sw.function
async def part(s: sw.State, topic: str) -> str:
    s += sw.user(f"On {topic}.") + sw.assistant(sw.gen("part"))
    return str(await s.aget("part"))


@sw.function
async def whole(s: sw.State, topics: list[str]) -> list[str]:
    s += sw.system("Write.")
    forks = s.fork(len(topics))
    inline = await asyncio.gather(
        *(part(fork, topic) for fork, topic in zip(forks, topics, strict=True))
    )
    apart = await part.arun(topics[0])
    forks.join()
    assert await s.aget("part") == inline
    meta = await s.aget_meta_info("part")
    assert len(meta) == len(topics)
    s += sw.user("End.") + sw.assistant(sw.gen_int("n"))
    assert (await s.amessages())[-1]["content"] == "7"
    assert (await s.atext()).endswith("7\n")
    await s.adone()
    return [*inline, apart.ret_value, str(await s.aparsed("n", int))]


def answer(request: Request) -> str:
    return "7" if request.name == "n" else request.prompt.messages[-1].content.upper()


def test_an_async_program_on_its_callers_loop() -> None:
    loops = set()

    class Watching(sw.Scripted):
        async def generate(self, request: Request) -> Any:
            loops.add(asyncio.get_running_loop())
            return await super().generate(request)

    async def main() -> None:
        before = threading.active_count()
        states = await asyncio.gather(
            *(whole.arun(["a", "b"], backend=Watching(answer)) for _ in range(20))
        )
        assert [state.ret_value for state in states] == [["ON A.", "ON B.", "ON A.", "7"]] * 20
        assert loops == {asyncio.get_running_loop()}
        assert threading.active_count() == before

    asyncio.run(main())


def test_states_can_be_read_when_their_loop_is_gone() -> None:
    state = asyncio.run(part.arun("x", backend=sw.Scripted(answer)))
    assert state.messages()[-1] == {"role": "assistant", "content": "ON X."}
    assert state.text().endswith("<|assistant|>\nON X.\n")
    assert (state["part"], state.error(), list(state.text_iter())[-1]) == ("ON X.", None, "ON X.")
    state.sync()
    assert "ON X." in repr(state)

    async def later() -> list[str]:
        return [await state.aget("part"), await state.aret_value(), *[p async for p in state]]

    assert asyncio.run(later()) == ["ON X.", "ON X.", "On x.", "ON X."]


def test_an_async_program_without_a_loop_of_ones_own() -> None:
    assert whole.run(["x"], backend=sw.Scripted(answer)).ret_value == ["ON X.", "ON X.", "7"]


def test_a_sync_program_from_an_event_loop_has_one_thread() -> None:
    @sw.function
    def program(s: sw.State) -> str:
        s += "x" + sw.gen("x")
        return str(s["x"])

    async def main() -> str:
        notebook = program.run(backend=sw.Scripted(["blocking"]))  # as in a notebook's cell
        assert notebook.ret_value == "blocking"
        return (await program.arun(backend=sw.Scripted(["ok"]))).ret_value

    assert asyncio.run(main()) == "ok"


def test_errors_of_async_programs_arrive() -> None:
    @sw.function
    async def program(s: sw.State, read: bool) -> None:
        s += "x" + sw.gen("x")
        if read:
            await s.aget("x")

    for read in (True, False):
        with pytest.raises(ConnectionError):
            asyncio.run(program.arun(read, backend=sw.Scripted([ConnectionError()])))
        with pytest.raises(ConnectionError):
            program.run(read, backend=sw.Scripted([ConnectionError()]))

    @sw.function
    async def nested(s: sw.State) -> None:
        part.run("x")

    with pytest.raises(RuntimeError, match="await arun"):
        nested.run(backend=sw.Scripted(["x"]))


def test_cancelling_an_async_program_cancels_its_requests() -> None:
    events = []

    class Endless(sw.Scripted):
        async def generate(self, request: Request) -> Any:
            events.append("begun")
            try:
                await asyncio.sleep(60)
            finally:
                events.append("ended")

    async def main() -> None:
        task = asyncio.create_task(part.arun("x", backend=Endless([])))
        while not events:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert events == ["begun", "ended"]

    asyncio.run(main())
    with pytest.raises(TimeoutError):
        asyncio.run(part.arun("x", backend=Endless([]), timeout=0.02))
