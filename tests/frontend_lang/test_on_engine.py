"""Programs on the real model in this process: what they send, and that scripts stand for it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import sapwood as sw
from sapwood import Engine, SamplingParams
from sapwood.frontend_lang.runtime import Answer, Prompt, Request, ScoreRequest
from sapwood.srt.errors import RequestError

from .programs import ALL, Animal, chat

GREEDY: dict[str, Any] = {"temperature": 0.0}


class Keeping:
    """Passes everything to another runtime, and keeps it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.answers: dict[tuple[Any, Prompt], Answer] = {}
        self.scores: dict[Prompt, Any] = {}

    async def generate(self, request: Request) -> list[Answer]:
        done = await self.inner.generate(request)
        self.answers[request.name, request.prompt] = done[0]
        return list(done)

    async def score(self, request: ScoreRequest) -> Any:
        scores = await self.inner.score(request)
        listed = zip(request.continuations, scores, strict=True)
        self.scores[request.prompt] = {
            text: [(str(i), value) for i, value in zip(s.ids, s.logprobs, strict=True)]
            for text, s in listed
        }
        return scores

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def script(self, request: Any) -> Any:
        """What was answered then."""
        if isinstance(request, ScoreRequest):
            return self.scores[request.prompt]
        return self.answers[request.name, request.prompt]


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_the_same_programs_on_engine_and_script(engine: Engine, program: Any) -> None:
    """Equal texts, messages and variables; and the engine's are equal when run again."""
    from sapwood.frontend_lang.engine_runtime import EngineRuntime

    keeping = Keeping(EngineRuntime(engine))
    live = program.run("owl", backend=keeping, **GREEDY)
    again = program.run("owl", backend=engine, **GREEDY)
    scripted = program.run("owl", backend=sw.Scripted(keeping.script), **GREEDY)
    names = [name for name in live._line.variables if name is not None]
    for other in (again, scripted):
        assert [other[name] for name in names] == [live[name] for name in names]
        assert other.messages() == live.messages()
    assert again.text() == live.text()
    streamed = program.run("owl", backend=engine, stream=True, **GREEDY)
    assert "".join(streamed.text_iter()) == "".join(live.text_iter())


def test_what_is_sent_is_the_models_own_template(engine: Engine) -> None:
    """And equal to what the engine makes of the same messages, to the token."""
    state = chat.run("<|im_end|> owls", backend=engine, **GREEDY)
    messages = state.messages()
    asked = [*messages[:2], {"role": "assistant", "content": "Well, "}]
    ids = engine.tokenize(asked, add_generation_prompt=False, continue_final_message=True)
    done = engine.generate(ids, SamplingParams(temperature=0, max_tokens=6))
    assert (done.text, done.prompt_tokens) == (
        state["opening"],
        state.get_meta_info("opening")["prompt_tokens"],
    )
    assert done.ids == state.get_meta_info("opening")["output_ids"]
    ids = engine.tokenize(messages, add_generation_prompt=False)
    assert state.text() == engine.decode(ids, skip_special=False)


def test_constraints(engine: Engine) -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += sw.user("An animal, please.")
        s += sw.assistant(sw.gen("animal", json_schema=Animal, max_tokens=40))
        s += sw.user("A code?") + sw.assistant(sw.gen("code", regex="[A-Z]{3}-[0-9]{2}"))
        s += sw.user("x?") + sw.assistant(sw.gen("ebnf", ebnf='root ::= "a" | "b"'))
        lark = {"syntax": "lark", "definition": 'start: "c" | "d"'}
        s += sw.user("xx?") + sw.assistant(sw.gen("lark", grammar=lark, on_budget="cut"))
        s += sw.user("y?") + sw.assistant(sw.gen_float("float", max_tokens=8))
        s += sw.user("z?") + sw.assistant(sw.gen_string("string", max_tokens=12))
        s += sw.user("t?") + sw.assistant(sw.gen("truth", dtype=bool))

    state = program.run(backend=engine, **GREEDY)
    assert isinstance(state["animal"], Animal)
    assert state.raw("animal").startswith('{"name": "')
    assert state["code"][3] == "-"
    assert state["ebnf"] in ("a", "b")
    assert state["lark"] in ("c", "d")
    assert isinstance(state.parsed("float"), float)
    assert isinstance(state.parsed("string"), str)
    assert state["truth"] in ("True", "False")


def test_numbers_end_where_the_model_goes_on(engine: Engine) -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += "The number of hours in a day is " + sw.gen_int("hours") + "\n"
        s += "The number of days in a year is " + sw.gen_float("days") + "\n"

    state = program.run(backend=engine, **GREEDY)
    assert (state.parsed("hours"), state.parsed("days")) == (24, 365.0)
    assert state.text().splitlines()[0] == "The number of hours in a day is 24"


def test_refusals_arrive_with_their_places(engine: Engine) -> None:
    @sw.function
    def program(s: sw.State, **options: Any) -> None:
        s += "x" + sw.gen("x", **options)

    with pytest.raises(RequestError, match="top_p is 2") as caught:
        program.run(top_p=2.0, backend=engine)
    assert f"gen('x') at {__file__}:" in caught.value.__notes__[0]
    for name, value in (("tool_choice", "auto"), ("stop_regex", "x"), ("priority", 1)):
        bound = sw.function(lambda s, n=name, v=value: s.__iadd__(sw.gen("x", **{n: v})))
        with pytest.raises(sw.Unsupported, match=name):
            bound.run(backend=engine)


def test_tools(engine: Engine) -> None:
    """Shown, called and answered as the server's chat completions do it."""
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    tools = [{"type": "function", "function": {"name": "add", "parameters": parameters}}]

    @sw.function
    def program(s: sw.State) -> None:
        s += sw.user("Add 1.")
        s += sw.assistant(sw.gen("call", tools=tools, tool_choice="required", max_tokens=60))
        for call in s.get_meta_info("call")["tool_calls"]:
            assert call["function"]["name"] == "add"
            assert type(json.loads(call["function"]["arguments"])["a"]) is int
            s += sw.tool(call["id"], "2")
        s += sw.assistant(sw.gen("end", max_tokens=4)) + sw.user("Thanks.")
        s += sw.assistant(sw.gen("shown", max_tokens=4, tools=tools))

    state = program.run(backend=engine, **GREEDY)
    assert state.get_meta_info("call")["finish_reason"]["type"] == "tool_calls"
    roles = [message["role"] for message in state.messages()]
    assert roles[:3] == ["user", "assistant", "tool"]
    assert roles[-3:] == ["assistant", "user", "assistant"]
    messages = state.messages()[:-3]
    body = {"messages": messages, "max_tokens": 4, "temperature": 0}
    reply = asyncio.run(engine.achat(body))
    assert reply["usage"]["prompt_tokens"] == state.get_meta_info("end")["prompt_tokens"]
    assert reply["choices"][0]["message"]["content"] == state["end"]
    assert "2" in state.text()


def test_select_heals_the_border_and_scores_all_from_one_place(engine: Engine) -> None:
    @sw.function
    def program(s: sw.State, text: str, choices: list[str], method: Any = None) -> None:
        s += text + sw.select("x", choices, choices_method=method)

    choices = ["Rome", "Milan"]
    state = program.run("The capital of Italy is ", choices, backend=engine)
    assert state["x"] == "Rome"
    entries = state.get_meta_info("x")["input_token_logprobs"]
    healed = [engine.tokenize(f"The capital of Italy is {choice}") for choice in choices]
    assert [[e[1] for e in each] for each in entries] == [ids[5:] for ids in healed]
    for method in (
        sw.token_length_normalized,
        sw.greedy_token_selection,
        sw.unconditional_likelihood_normalized,
    ):
        first = [" Paris", " Paris, of course", " London"]
        state = program.run("The capital of France is", first, method, backend=engine)
        assert state["x"].startswith(" Paris")
        one = program.run("The capital of France is", [" London"], method, backend=engine)
        assert one["x"] == " London"
    nothing = program.run("", ["The", "Xq"], sw.token_length_normalized, backend=engine)
    assert nothing["x"] == "The"
    unconditional = sw.unconditional_likelihood_normalized
    assert program.run("", ["The", "Xq"], unconditional, backend=engine)["x"] in ("The", "Xq")


def test_branches_compute_their_prefix_once(engine: Engine) -> None:
    """8 groups of 8 branches, each group with a header of its own."""

    @sw.function
    def program(s: sw.State, group: int) -> None:
        s += f"Group {group}. " * 40
        forks = s.fork(8)
        forks += lambda i: f"{i}" + sw.gen("x", max_tokens=2, ignore_eos=True)
        forks.join()

    before = engine.stats.computed_prompt_tokens
    states = program.run_batch([(g,) for g in range(8)], backend=engine, **GREEDY)
    computed = engine.stats.computed_prompt_tokens - before
    header = len(engine.tokenize("Group 1. " * 40))
    assert all(len(state["x"]) == 8 for state in states)
    assert computed <= 8 * (header + 8 * 3)


def test_samples_seeds_and_logprobs(engine: Engine) -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += "Once" + sw.gen("x", n=3, max_tokens=5, seed=4, ignore_eos=True)
        s += sw.gen(
            "y",
            max_tokens=2,
            return_logprob=True,
            top_logprobs_num=2,
            logprob_start_len=0,
            return_text_in_logprobs=True,
            ignore_eos=True,
        )

    state = program.run(backend=engine)
    assert state["x"] == program.run(backend=engine)["x"]
    assert len(set(state["x"])) > 1
    meta = state.get_meta_info("y")
    assert len(meta["output_token_logprobs"]) == 2
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"]
    assert meta["input_token_logprobs"][0][2] == "Once"
    assert [len(top) for top in meta["output_top_logprobs"]] == [2, 2]
    live = program.run(backend=engine, stream=True)
    streamed = live.get_meta_info("y")
    assert streamed.keys() == meta.keys()
    assert len(streamed["output_token_logprobs"]) == 2
    assert len(streamed["input_token_logprobs"]) == streamed["prompt_tokens"]


def test_ending_a_run_ends_its_requests(engine: Engine) -> None:
    @sw.function
    def program(s: sw.State, interrupted: bool) -> None:
        s += "x" + sw.gen("x", max_tokens=4000, ignore_eos=True)
        if interrupted:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.run(True, backend=engine)
    with pytest.raises(TimeoutError):
        program.run(False, backend=engine, timeout=0.1)
    engine.generate("x", SamplingParams(max_tokens=1))
    assert engine.stats.running == 0


SCRIPT = """
import sys
import sapwood as sw

@sw.function
def program(s):
    forks = s.fork(3)
    forks += "Once" + sw.gen("x", max_tokens=4000, ignore_eos=True)
    forks.join()

engine = sw.Engine(sys.argv[2], kv_tokens=16000)
if sys.argv[1] == "interrupted":
    print("begun", flush=True)
    program.run(backend=engine)
state = program.run(backend=engine, stream=True)
assert engine.generate("x", sw.SamplingParams(max_tokens=2)).ids
"""


def test_python_ends_while_an_engine_works(default_model_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, "left", str(default_model_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_while_an_engine_works(default_model_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, "interrupted", str(default_model_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_in_a_notebook(engine: Engine, default_model_path: Path) -> None:
    """Inside a running event loop, in all ways, and with a second engine in the process."""

    @sw.function
    def program(s: sw.State) -> str:
        s += "One, two," + sw.gen("x", max_tokens=2)
        return str(s["x"])

    params = SamplingParams(max_tokens=2, temperature=0)

    async def cell() -> None:
        with Engine(str(default_model_path), kv_tokens=2000) as second:
            texts = {
                engine.generate("One, two,", params).text,
                (await second.agenerate("One, two,", params)).text,
                "".join(piece.text for piece in second.stream("One, two,", params)),
                program.run(backend=second, **GREEDY).ret_value,
                (await program.arun(backend=engine, **GREEDY)).ret_value,
                program.run_batch([{}, {}], backend=second, **GREEDY)[1].ret_value,
                "".join(program.run(backend=second, stream=True, **GREEDY).text_iter("x")),
            }
            assert len(texts) == 1
        with pytest.raises(RequestError, match="shut down"):
            program.run(backend=second)

    asyncio.run(cell())


def test_async_programs_flush_and_the_default_backend(engine: Engine) -> None:
    @sw.function
    async def program(s: sw.State) -> str:
        s += "One, two," + sw.gen("x", max_tokens=2)
        return str(await s.aget("x"))

    async def main() -> list[str]:
        states = await asyncio.gather(*(program.arun(**GREEDY) for _ in range(4)))
        return [state.ret_value for state in states]

    sw.set_default_backend(engine)
    try:
        assert set(asyncio.run(main())) == {program.run(**GREEDY).ret_value}
        assert sw.flush_cache()
    finally:
        sw.set_default_backend(None)
    with pytest.raises(ValueError, match="no backend"):
        sw.flush_cache()
