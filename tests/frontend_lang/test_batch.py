"""``run_batch``: order, failures in their places, threads, ends."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

import sapwood as sw
from sapwood.frontend_lang.runtime import Prompt, Request


@sw.function
def branching(s: sw.State, number: int) -> int:
    s += f"item {number}: "
    forks = s.fork(8)
    forks += lambda i: f"{i} " + sw.gen("x")
    forks.join()
    read = len(s["x"])
    if number == 17:
        raise LookupError("seventeen")
    return read


def script(request: Request) -> Any:
    number = int(request.prompt.text.split()[1].rstrip(":"))
    if number == 23:
        return sw.ServerError("top_p is 2", status=400)
    return f"<{number}>"


class Lost(sw.Scripted):
    """Item 31 never gets an answer."""

    async def generate(self, request: Request) -> Any:
        if request.prompt.text.startswith("item 31"):
            await asyncio.sleep(60)
        return await super().generate(request)


@pytest.mark.parametrize("threads", [1, 4, "auto", 1000])
@pytest.mark.parametrize("bar", [False, True])
@pytest.mark.parametrize("generator", [False, True])
def test_c088_each_failure_in_its_place(
    threads: Any, bar: bool, generator: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """C088: 50 items that fork 8 each, three of which fail in different ways."""
    items: list[dict[str, Any]] = [{"number": i} for i in range(50)]
    items[31]["timeout"] = 0.2
    states = list(branching.run_batch(items, threads, bar, generator, backend=Lost(script)))
    assert len(states) == 50
    errors = {at: state.error() for at, state in enumerate(states) if state.error() is not None}
    kinds = {at: type(error) for at, error in errors.items()}
    assert kinds == {17: LookupError, 23: sw.ServerError, 31: TimeoutError}
    for at, state in enumerate(states):
        if at in errors:
            with pytest.raises(kinds[at]):
                _ = state.ret_value
        else:
            assert (state.ret_value, state["x"]) == (8, [f"<{at}>"] * 8)
    assert states[17]["x"] == ["<17>"] * 8  # it came before the error
    assert ("50/50" in capsys.readouterr().err) == bar


def test_a_batch_that_is_to_raise_raises_the_failure() -> None:
    with pytest.raises(LookupError, match="seventeen"):
        branching.run_batch([(i,) for i in range(20)], backend=Lost(script), on_error="raise")


def test_no_more_programs_at_a_time_than_threads() -> None:
    now, most = 0, 0

    class Counting(sw.Scripted):
        async def generate(self, request: Request) -> Any:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.01)
            now -= 1
            return await super().generate(request)

    @sw.function
    async def program(s: sw.State, a: str) -> str:
        s += a + sw.gen("x")
        return str(await s.aget("x"))

    for body in (program, sw.function(lambda s, a: s.__iadd__(a + sw.gen("x"))["x"])):
        most = 0
        runtime = Counting(lambda request: request.prompt.text)
        states = body.run_batch([("a",), ("b",)] * 6, num_threads=3, backend=runtime)
        assert [state.ret_value for state in states] == ["a", "b"] * 6
        assert most == 3


def test_empty_batches_and_wrong_items() -> None:
    runtime = sw.Scripted([])
    assert branching.run_batch([], backend=runtime) == []
    assert list(branching.run_batch([], backend=runtime, generator_style=True)) == []
    with pytest.raises(TypeError, match="item 1 of the batch: missing a required argument"):
        branching.run_batch([{"number": 1}, {}], backend=runtime)
    with pytest.raises(TypeError, match="a dict or a tuple"):
        branching.run_batch(["a"], backend=runtime)
    with pytest.raises(TypeError, match="unknown option 'temprature'"):
        branching.run_batch([{"number": 1}], temprature=1, backend=runtime)
    with pytest.raises(ValueError, match="num_threads is 0"):
        branching.run_batch([{"number": 1}], num_threads=0, backend=runtime)


def test_a_generator_gives_results_in_order_as_they_come() -> None:
    gate = threading.Event()

    class Gated(sw.Scripted):
        async def generate(self, request: Request) -> Any:
            if "2" in request.prompt.text:
                await asyncio.to_thread(gate.wait, 10)
            return await super().generate(request)

    @sw.function
    def program(s: sw.State, number: int) -> None:
        s += f"{number}" + sw.gen("x")

    runtime = Gated(lambda request: request.prompt.text)
    states = program.run_batch(
        [(i,) for i in range(4)], backend=runtime, generator_style=True, warm=False
    )
    assert [next(states)["x"], next(states)["x"]] == ["0", "1"]
    gate.set()
    assert [state["x"] for state in states] == ["2", "3"]


def test_leaving_a_generator_ends_the_rest() -> None:
    begun: list[str] = []

    class Recording(sw.Scripted):
        async def generate(self, request: Request) -> Any:
            begun.append(request.prompt.text)
            if request.prompt.text != "0":
                await asyncio.sleep(60)
            return await super().generate(request)

    @sw.function
    def program(s: sw.State, number: int) -> str:
        s += f"{number}" + sw.gen("x")
        return str(s["x"])

    states = program.run_batch(
        [(i,) for i in range(9)], 2, False, True, backend=Recording(["."] * 9)
    )
    next(states)
    states.close()
    seen = len(begun)
    time.sleep(0.05)
    assert len(begun) == seen < 9


def test_ctrl_c_ends_a_batch_at_once() -> None:
    """C088: programs that wait for requests, and one that is stuck in its own code."""
    stuck = threading.Event()

    @sw.function
    def program(s: sw.State, number: int) -> str:
        if number == 3:
            stuck.wait(60)
        s += f"{number}" + sw.gen("x")
        if number == 5:
            signal.raise_signal(signal.SIGINT) if threading.current_thread() is main else None
        return str(s["x"])

    main = threading.current_thread()
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(main.ident or 0, signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        program.run_batch([(i,) for i in range(6)], backend=sw.Scripted(["."] * 6, delay=60))
    assert time.monotonic() - began < 10
    stuck.set()


class Warming(sw.Scripted):
    """Keeps what was warmed."""

    def __init__(self) -> None:
        super().__init__(lambda request: ".")
        self.warmed: list[Prompt] = []

    async def warm(self, prompt: Prompt) -> None:
        self.warmed.append(prompt)


LONG = "A header that is long enough to be worth a request of its own. " * 2


@pytest.mark.parametrize("native", [False, True])
def test_constant_beginnings_are_warmed_once(native: bool) -> None:
    ran = []

    def chat(s: sw.State, question: str, header: str, extra: str = "e") -> None:
        s += sw.system(header + extra)
        s += sw.user("Constant.") + sw.user(f"Q: {question}")
        s += sw.assistant(sw.gen("x"))
        ran.append(question)

    async def achat(s: sw.State, question: str, header: str, extra: str = "e") -> None:
        chat(s, question, header, extra)

    runtime = Warming()
    program: Any = sw.function(achat if native else chat)
    program.run_batch([(q, LONG) for q in "abc"], backend=runtime)
    (prompt,) = runtime.warmed
    assert [m.content for m in prompt.messages] == [LONG + "e", "Constant."]
    assert sorted(ran) == ["a", "b", "c"]  # the stand-in's run ended before
    program.run_batch([(q, q + LONG) for q in "abc"], backend=runtime)
    program.run_batch([("a", LONG)], backend=runtime)
    program.run_batch([("a", LONG), ("b", LONG)], backend=runtime, warm=False)
    assert len(runtime.warmed) == 1
    asyncio.run(program.arun_batch([("a", LONG), ("b", LONG)], backend=runtime))
    assert len(runtime.warmed) == 2


def test_a_plain_beginning_is_warmed_up_to_the_first_argument() -> None:
    @sw.function
    def program(s: sw.State, question: str) -> None:
        s += LONG
        s += "Q: " + question
        s += sw.gen("x")

    runtime = Warming()
    program.run_batch([("a",), ("b",)], backend=runtime)
    assert [prompt.text for prompt in runtime.warmed] == [LONG + "Q: "]
    assert program.cache(runtime) == LONG + "Q: "


def test_batches_of_async_programs_on_an_event_loop() -> None:
    @sw.function
    async def program(s: sw.State, number: int) -> str:
        s += f"item {number}" + sw.gen("x")
        return str(await s.aget("x"))

    async def main() -> None:
        before = threading.active_count()
        states = await program.arun_batch(
            [(i,) for i in range(30)], backend=sw.Scripted(script), warm=False
        )
        assert [state.error() is None for state in states] == [i != 23 for i in range(30)]
        assert threading.active_count() == before
        with pytest.raises(sw.ServerError):
            await program.arun_batch(
                [(i,) for i in range(30)], backend=sw.Scripted(script), on_error="raise"
            )

    asyncio.run(main())
