"""Programs on a scripted runtime: order, branches, errors, streams."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

import pytest

import sapwood as sw
from sapwood.frontend_lang.runtime import Request


def asked(runtime: sw.Scripted) -> list[Request]:
    return [each for each in runtime.requests if isinstance(each, Request)]


def test_a_chat_becomes_messages_and_its_answers_variables() -> None:
    @sw.function
    def program(s: sw.State, question: str) -> str:
        s += sw.system("Be brief.")
        s += sw.user("Question: " + question)
        s += sw.assistant("Answer: " + sw.gen("answer", max_tokens=5) + ".")
        return str(s["answer"])

    runtime = sw.Scripted({"answer": "blue"})
    state = program.run("What?", backend=runtime)
    assert state.ret_value == state["answer"] == "blue"
    assert state.messages() == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Question: What?"},
        {"role": "assistant", "content": "Answer: blue."},
    ]
    (request,) = asked(runtime)
    assert [m.role for m in request.prompt.messages] == ["system", "user"]
    assert (request.prompt.text, request.sampling.max_tokens) == ("Answer: ", 5)
    assert state.get_meta_info("answer")["completion_tokens"] == 4


def test_a_plain_text_grows() -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += "1 + 1 = "
        s += sw.gen("two", stop="\n")
        s += "\n2 + 2 = " + sw.gen("four") + "!"

    runtime = sw.Scripted({"two": "2\nand so on", "four": "4"})
    state = program.run(backend=runtime)
    assert state.text() == "1 + 1 = 2\n2 + 2 = 4!"
    assert [r.prompt.text for r in asked(runtime)] == ["1 + 1 = ", "1 + 1 = 2\n2 + 2 = "]
    assert state.messages() == []


def test_roles_as_blocks_and_as_begin_and_end() -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += sw.system_begin() + "a" + sw.system_end()
        with s.user():
            s += "b"
            s += "c"
        s += sw.assistant_begin()
        s += sw.gen("d")
        s += sw.assistant_end()
        s.user("e")
        with s.assistant(), s.var_scope("whole"):
            s += "f" + sw.gen("g")

    state = program.run(backend=sw.Scripted({"d": "D", "g": "G"}))
    assert [m["content"] for m in state.messages()] == ["a", "bc", "D", "e", "fG"]
    assert state["whole"] == "fG"


def test_branches_run_at_once_and_writing_does_not_wait() -> None:
    together = threading.Barrier(5)  # four requests and this test

    def answer(request: Request) -> str:
        return str(request.prompt.text[-1])

    class Slow(sw.Scripted):
        async def generate(self, request: Request) -> Any:
            await asyncio.to_thread(together.wait, 10)
            return await super().generate(request)

    @sw.function
    def program(s: sw.State) -> None:
        s += "x"
        forks = s.fork(4)
        forks += lambda i: str(i) + sw.gen("y")
        together.wait(10)  # passes only if all four requests are in flight by now
        forks.join()

    assert program.run(backend=Slow(answer))["y"] == list("0123")


def test_no_thread_for_each_branch() -> None:
    counts = []

    def answer(request: Request) -> str:
        counts.append(threading.active_count())
        return "."

    @sw.function
    def program(s: sw.State) -> None:
        for branch in s.fork(100):
            branch += sw.gen("x")

    before = threading.active_count()
    program.run(backend=sw.Scripted(answer))
    assert max(counts) <= before + 1  # the loop that all programs share
    assert len(counts) == 100


@pytest.mark.parametrize("first", [None, ""])
def test_c083_fork_before_any_text(first: str | None) -> None:
    """C083: no request is sent for the fork; none and one are sizes like others."""

    @sw.function
    def program(s: sw.State) -> int:
        if first is not None:
            s += first
        for at, branch in enumerate(s.fork(3)):
            branch += f"{at}:" + sw.gen("x")
        group = s.fork(3)
        group += "a" + sw.gen("x")
        group.join()
        (one,) = s.fork(1)
        one += sw.gen("x")
        return len(s.fork(0))

    runtime = sw.Scripted(lambda request: "<" + request.prompt.text + ">")
    state = program.run(backend=runtime)
    assert state.ret_value == 0
    assert state["x"] == ["<a>"] * 3
    assert len(runtime.requests) == 7
    with pytest.raises(ValueError, match="0 or more"):
        sw.function(lambda s: s.fork(-1)).run(backend=runtime)


def test_join_concatenates_what_the_branches_wrote() -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += sw.user("Two parts.") + sw.assistant_begin() + "Parts:"
        with s.fork(2) as forks:
            forks += [" one" + sw.gen("x"), " two" + sw.gen("x")]
        both = s.fork(2)
        both += lambda i: f" {i}" + sw.gen("y")
        both.join("concate_and_append")
        s += sw.assistant_end()

    state = program.run(backend=sw.Scripted({"x": "!", "y": "?"}))
    assert state["x"] == ["!", "!"]
    assert state.messages()[-1]["content"] == "Parts: 0? 1?"


def test_each_branch_can_be_written_by_its_number() -> None:
    @sw.function
    def program(s: sw.State) -> None:
        forks = s.fork(2)
        forks[0] += "a" + sw.gen("x")
        forks[1] += "b" + sw.gen("x")
        forks.join()
        with pytest.raises(ValueError, match="the states of a fork"):
            forks[0] = s

    state = program.run(backend=sw.Scripted(lambda request: request.prompt.text))
    assert state["x"] == ["a", "b"]


def test_a_copy_gives_its_new_variables_back() -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += "a" + sw.gen("x")
        with s.copy() as other:
            other += sw.gen("x") + sw.gen("y")

    state = program.run(backend=sw.Scripted(["1", "2", "3"]))
    assert (state["x"], state["y"], state.text()) == ("1", ["3"], "a1")


def test_what_a_state_shows_of_itself() -> None:
    @sw.function
    def plain(s: sw.State) -> str:
        s += "a" + sw.gen("x")
        return repr(s)

    @sw.function
    def chat(s: sw.State) -> None:
        s += sw.user("a")

    state = plain.run(backend=sw.Scripted(["1"]))
    assert state.ret_value.startswith("Outcome('")  # whatever is there by then
    assert repr(state) == "Outcome('a1')"
    assert repr(chat.run(backend=sw.Scripted([]))) == (
        "Outcome([{'role': 'user', 'content': 'a'}])"
    )


def test_variables_are_inherited_and_names_can_be_used_again() -> None:
    @sw.function
    def program(s: sw.State) -> list[Any]:
        s += sw.gen("x")
        s["given"] = 5
        with s.copy() as other:
            other += sw.gen("x")
            got = [other["given"], other["x"], s["x"]]
        s += sw.gen("x") + sw.gen()
        return [*got, s["x"], s[None], "x" in s, "y" in s, s.get("y", 0)]

    state = program.run(backend=sw.Scripted(["1", "2", "3", "4"]))
    assert state.ret_value in ([5, "2", "1", "3", "4", True, False, 0],)
    with pytest.raises(KeyError, match="nothing"):
        state["nothing"]


def test_programs_call_programs() -> None:
    @sw.function
    def inner(s: sw.State, what: str) -> str:
        s += what + sw.gen("inner")
        return str(s["inner"])

    @sw.function
    def outer(s: sw.State) -> list[str]:
        s += "outer:"
        here = inner(s, "here ")
        own = inner.run("apart ").ret_value
        return [here, own, s.text()]

    runtime = sw.Scripted(lambda request: f"({len(request.prompt.text)})")
    assert outer.run(backend=runtime).ret_value == ["(11)", "(6)", "outer:here (11)"]


def test_bind_sets_arguments_and_options() -> None:
    @sw.function
    def program(s: sw.State, a: str, b: str = "b") -> None:
        s += a + b + sw.gen("x")

    runtime = sw.Scripted(lambda request: request.prompt.text)
    bound = program.bind(b="B", max_new_tokens=7, backend=runtime)
    assert bound.run("A")["x"] == "AB"
    assert bound.run("A", "c")["x"] == "Ac"
    assert bound.bind(a="1").run(max_new_tokens=8)["x"] == "1B"
    assert [r.sampling.max_tokens for r in asked(runtime)] == [7, 7, 8]


def test_a_programs_own_parameter_wins_over_an_option_of_the_run() -> None:
    @sw.function
    def program(s: sw.State, temperature: str) -> None:
        s += temperature + sw.gen("x")

    runtime = sw.Scripted(["."])
    program.run(temperature="hot", backend=runtime)
    assert asked(runtime)[0].prompt.text == "hot"
    assert asked(runtime)[0].sampling.temperature == 1.0


def test_errors_have_the_programs_own_traceback() -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += "x" + sw.gen("bad")
        reading = s["bad"]  # raised here
        s += reading

    with pytest.raises(ConnectionError, match="gone") as caught:
        program.run(backend=sw.Scripted({"bad": ConnectionError("gone")}))
    shown = "".join(traceback.format_exception(caught.value))
    assert 'reading = s["bad"]' in shown
    assert "gen('bad') at " in shown
    assert __file__ in shown


def test_an_error_that_nobody_reads_is_raised_by_run() -> None:
    @sw.function
    def program(s: sw.State) -> str:
        branch = s.fork(2)[1]
        branch += sw.gen("bad")
        s += sw.gen("good")
        return str(s["good"])

    with pytest.raises(ConnectionError):
        program.run(backend=sw.Scripted({"good": "1", "bad": ConnectionError("gone")}))


def test_an_error_that_the_program_has_caught_is_over() -> None:
    @sw.function
    def program(s: sw.State) -> str:
        branch = s.fork(1)[0]
        branch += sw.gen("bad") + sw.gen("after")
        try:
            return str(branch["bad"])
        except ConnectionError:
            with pytest.raises(ConnectionError):
                branch["after"]
            with pytest.raises(ConnectionError):
                branch += "more"
            s += sw.gen("good")
            return str(s["good"])

    runtime = sw.Scripted({"good": "1", "bad": ConnectionError("gone")})
    assert program.run(backend=runtime).ret_value == "1"
    assert len(runtime.requests) == 2  # `after` was not asked for


def test_wrong_expressions_are_refused_where_they_are_written() -> None:
    def run(body: Any) -> None:
        sw.function(body).run(backend=sw.Scripted(["."]))

    def nothing(s: Any) -> None:
        s += None

    def number(s: Any) -> None:
        s += 5

    with pytest.raises(ValueError, match="lack its return"):
        run(nothing)
    with pytest.raises(TypeError, match="int cannot be appended"):
        run(number)
    with pytest.raises(TypeError, match="append themselves"):
        run(lambda s: s.__iadd__(s.user("x")))
    with pytest.raises(ValueError, match="roles do not nest"):
        run(lambda s: s.__iadd__(sw.user(sw.system("x"))))
    with pytest.raises(ValueError, match="only the assistant answers"):
        run(lambda s: s.__iadd__(sw.user(sw.gen("x"))))
    with pytest.raises(ValueError, match="must be `s`"):
        sw.function(lambda state: None)
    with pytest.raises(ValueError, match="no backend"):
        sw.function(lambda s: None).run()


def test_a_timeout_ends_a_run() -> None:
    @sw.function
    def program(s: sw.State) -> str:
        s += sw.gen("x")
        return str(s["x"])

    runtime = sw.Scripted({"x": "never"}, delay=60.0)
    with pytest.raises(TimeoutError, match="more than 0"):
        program.run(backend=runtime, timeout=0.05)


def test_ctrl_c_ends_a_run_at_once_and_cancels_its_requests() -> None:
    cancelled = threading.Event()

    class Endless(sw.Scripted):
        async def generate(self, request: Request) -> Any:
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.set()

    @sw.function
    def program(s: sw.State) -> None:
        s += sw.gen("x")
        time.sleep(0.05)  # let the request begin
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.run(backend=Endless([]))
    assert cancelled.wait(5)


SCRIPT = """
import sys, threading
import sapwood as sw

@sw.function
def program(s, i):
    for branch in s.fork(3):
        branch += "x" + sw.gen("x")
    if i == 2:
        print("begun", flush=True)
    s += "x" + sw.gen("x")
    return s["x"]

@sw.function
async def native(s, i):
    if i == 2:
        print("begun", flush=True)
    s += "x" + sw.gen("x")
    return await s.aget("x")

runtime = sw.Scripted(["never"] * 99, delay=600)
how = sys.argv[1]
if how == "run":
    program.run(2, backend=runtime)
elif how == "stream":
    list(program.run(2, backend=runtime, stream=True).text_iter())
elif how == "batch":
    program.run_batch([(i,) for i in range(5)], backend=runtime, warm=False)
elif how == "native":
    native.run_batch([(i,) for i in range(5)], backend=runtime, warm=False)
else:
    import asyncio
    asyncio.run(native.arun(2, backend=runtime))
"""


@pytest.mark.parametrize("how", ["run", "stream", "batch", "native", "loop"])
def test_ctrl_c_in_a_process_of_its_own(how: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "destroyed" not in errors
    assert "never retrieved" not in errors
