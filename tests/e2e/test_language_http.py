"""The language against a real server: over HTTP what the engine would do in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sapwood as sw

from ..frontend_lang.programs import ALL
from .conftest import Server, starting


@pytest.fixture
def runtime(server: Server) -> Iterator[sw.Server]:
    with sw.Server(server.url) as runtime:
        yield runtime


@sw.function
def dialogue(s: sw.State, question: str) -> None:
    s += sw.system("Be brief.") + sw.user(question)
    s += sw.assistant("Answer: " + sw.gen("first", max_tokens=8))
    s += sw.user("And now?") + sw.assistant(sw.gen("second", max_tokens=6))


def test_what_is_sent_is_what_the_chat_endpoint_makes_of_the_messages(
    server: Server, runtime: sw.Server
) -> None:
    state = dialogue.run("What is <|im_end|> for?", backend=runtime, temperature=0)
    messages = state.messages()
    for name, at, opens in (("second", 4, True), ("first", 2, False)):
        body: dict[str, Any] = {"temperature": 0, "messages": messages[:at]}
        if not opens:
            begun = {"role": "assistant", "content": "Answer: "}
            body["messages"] = [*messages[:at], begun]
            body["continue_final_message"] = True
        body["max_tokens"] = 6 if opens else 8
        status, reply = server.request("POST", "/v1/chat/completions", body)
        assert status == 200, reply
        meta = state.get_meta_info(name)
        assert reply["usage"]["prompt_tokens"] == meta["prompt_tokens"]
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == meta["prompt_tokens"] - 1
        assert reply["choices"][0]["message"]["content"] == state[name]
    assert state.text().startswith("<|im_start|>system\nBe brief.<|im_end|>\n")


@pytest.fixture(scope="module")
def engine(default_model_path: Path) -> Iterator[sw.Engine]:
    with sw.Engine(str(default_model_path), kv_tokens=8000, dtype="float32") as engine:
        yield engine


@pytest.fixture(scope="module")
def exact(default_model_path: Path) -> Iterator[sw.Server]:
    """In float32: branches run as they come, and steps of other rows round otherwise."""
    with starting() as begin:
        options = ("--port", "0", "--kv-tokens", "8000", "--dtype", "float32")
        live = begin(str(default_model_path), *options)
        with sw.Server(live.ready().url) as runtime:
            yield runtime


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_the_same_programs_on_a_server_and_on_an_engine(
    engine: sw.Engine, exact: sw.Server, program: Any
) -> None:
    """Texts, messages, variables, token counts: all are equal under greedy sampling."""
    there = program.run("owl", backend=exact, temperature=0)
    here = program.run("owl", backend=engine, temperature=0)
    names = list(here._line.variables)
    assert names == list(there._line.variables)
    for name in names:
        assert there[name] == here[name]
        assert counts(there.get_meta_info(name)) == counts(here.get_meta_info(name))
    assert (there.messages(), there.text()) == (here.messages(), here.text())
    assert there.ret_value == here.ret_value


def counts(meta: Any) -> Any:
    """What both count, and which tokens a choice was scored by."""
    if isinstance(meta, list):
        return [counts(each) for each in meta]
    scored = [[e[1] for e in each] for each in meta.get("input_token_logprobs", ())]
    return meta.get("prompt_tokens"), meta.get("completion_tokens"), scored


def test_a_stream_is_the_whole_in_pieces(runtime: sw.Server) -> None:
    whole = dialogue.run("Why?", backend=runtime, temperature=0)
    for options in ({}, {"return_logprob": True}):
        live = dialogue.run("Why?", backend=runtime, temperature=0, stream=True, **options)
        pieces = list(live.text_iter("first"))
        assert "".join(pieces) == whole["first"]
        assert len(pieces) > 1
        assert live["second"] == whole["second"]
        assert live.get_meta_info("first")["completion_tokens"] == 8
        told = live.get_meta_info("first")
        assert ("output_token_logprobs" in told) == bool(options)
        assert isinstance(told["seed"], int)
        assert len(told["output_ids"]) == 8


def test_scores_logprobs_constraints_and_samples(runtime: sw.Server) -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += "The capital of Italy is "
        s += sw.select("city", ["Rome", "Milan"])
        with s.copy() as other:
            method = sw.unconditional_likelihood_normalized
            other += "x" + sw.select("y", ["yz", "w"], choices_method=method)
            assert other["y"]
        s += ". It has "
        s += sw.gen_int("many", max_tokens=4)
        s += " people, and its code is " + sw.gen("code", regex="[A-Z]{3}", temperature=0)
        s += "\n" + sw.gen("three", n=3, max_tokens=4, seed=1)
        s += sw.gen("scored", max_tokens=2, return_logprob=True, logprob_start_len=0)

    state = program.run(backend=runtime)
    assert state["city"] == "Rome"
    assert state.get_meta_info("city")["prompt_tokens"] >= 2 * 6
    again = program.run(backend=runtime).get_meta_info("city")
    assert 0 < again["cached_tokens"] < again["prompt_tokens"]
    assert state.parsed("many") >= 0
    assert len(state["code"]) == 3
    assert state["code"].isupper()
    assert len(set(state["three"])) > 1
    meta = state.get_meta_info("scored")
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"]
    assert state.text().startswith("The capital of Italy is Rome. It has ")


def test_refusals_arrive_with_the_servers_words(runtime: sw.Server) -> None:
    @sw.function
    def program(s: sw.State, **options: Any) -> str:
        s += "x" + sw.gen("x", max_tokens=2, **options)
        return str(s["x"])

    with pytest.raises(sw.ServerError, match="top_p is 2") as caught:
        program.run(top_p=2.0, backend=runtime)
    assert (caught.value.status, caught.value.param) == (400, "top_p")
    with pytest.raises(sw.ServerError, match="regex"):
        program.run(regex="(", backend=runtime)
    with pytest.raises(sw.Unsupported, match="stop_regex"):
        program.run(stop_regex="x", backend=runtime)
    with pytest.raises(ConnectionError, match="cannot be reached"):
        program.run(backend=sw.Server("http://127.0.0.1:9"))


def test_64_forks_compute_their_prefix_once(server: Server, runtime: sw.Server) -> None:
    prefix = "Some header that no other test has begun with. " * 12

    @sw.function
    def program(s: sw.State) -> None:
        s += prefix
        forks = s.fork(64)
        forks += lambda i: f"{i}" + sw.gen("x", max_tokens=1)
        forks.join()

    before = server.metric("sapwood_prefix_misses_tokens_total")
    state = program.run(backend=runtime, temperature=0)
    computed = server.metric("sapwood_prefix_misses_tokens_total") - before
    metas = state.get_meta_info("x")
    length = min(meta["prompt_tokens"] for meta in metas)
    assert length > 100
    assert computed < length + 64 * 4


def test_ending_a_program_ends_its_requests_on_the_server(server: Server) -> None:
    @sw.function
    async def program(s: sw.State) -> None:
        forks = s.fork(3)
        forks += "x" + sw.gen("x", max_tokens=4000, ignore_eos=True)
        for fork in forks:
            await fork.aget("x")

    async def main() -> None:
        async with sw.Server(server.url) as runtime:
            task = asyncio.create_task(program.arun(backend=runtime))
            while await asyncio.to_thread(server.metric, "sapwood_running_requests") < 3:
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    server.until(lambda: server.metric("sapwood_running_requests") == 0, "no requests")


def test_a_batch_warms_what_its_items_share(server: Server, runtime: sw.Server) -> None:
    @sw.function
    def program(s: sw.State, question: str) -> None:
        s += sw.system("You know everything about trees, and you are asked about each one of them.")
        s += sw.user(question) + sw.assistant(sw.gen("x", max_tokens=1))

    states = program.run_batch([{"question": q} for q in ("a", "b")], backend=runtime)
    assert all(state.get_meta_info("x")["cached_tokens"] > 10 for state in states)


def test_openai_runtime_on_our_server(server: Server, runtime: sw.Server) -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += sw.user("Say something.")
        s += sw.assistant(sw.gen("x", max_tokens=4, temperature=0))

    same = program.run(backend=runtime)
    with sw.OpenAI("default", base_url=server.url + "/v1") as openai:
        for stream in (False, True):
            state = program.run(backend=openai, stream=stream)
            assert state["x"] == same["x"]
            assert state.get_meta_info("x")["completion_tokens"] == 4
