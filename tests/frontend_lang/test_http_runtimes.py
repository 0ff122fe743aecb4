"""What the runtimes over HTTP send, and what they make of answers, refusals and broken streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import sapwood as sw
from sapwood.frontend_lang.bodies import OF_CHATS
from sapwood.frontend_lang.run import DETAILS

from .test_gen import UNUSUAL

CHAT = {
    "id": "1",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi"},
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "hi", "logprob": -0.5}]},
        }
    ],
    "usage": {
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 2},
    },
}
COMPLETION = {"choices": [{"index": 0, "text": "hi", "finish_reason": "length"}]}


class Wire:
    """A server that answers what it is told, and keeps what it was sent."""

    def __init__(self, answer: Callable[[str, Any], Any]) -> None:
        self.answer = answer
        self.sent: list[tuple[str, Any]] = []
        self.headers: list[httpx.Headers] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content or b"{}")
        self.sent.append((request.url.path, body))
        self.headers.append(request.headers)
        answer = self.answer(request.url.path, body)
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)


@contextmanager
def openai(answer: Callable[[str, Any], Any], **options: Any) -> Iterator[tuple[Wire, sw.OpenAI]]:
    wire = Wire(answer)
    transport = httpx.MockTransport(wire)
    with sw.OpenAI(
        "m", base_url="http://x/v1", api_key="k", transport=transport, **options
    ) as runtime:
        yield wire, runtime


def standard(path: str, body: Any) -> Any:
    return CHAT if "chat" in path else COMPLETION


@sw.function
def chat(s: sw.State, prefix: str = "", **options: Any) -> None:
    s += sw.system("S") + sw.user("U") + sw.assistant(prefix + sw.gen("x", **options))


@sw.function
def plain(s: sw.State, **options: Any) -> None:
    s += "U" + sw.gen("x", **options)


def test_openai_gets_what_openai_documents() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    with openai(standard) as (wire, runtime):
        options = {"temperature": 0.5, "stop": ["a"], "seed": 1, "logit_bias": {5: 1.0}}
        state = chat.run(backend=runtime, return_logprob=True, top_logprobs_num=2, n=1, **options)
        chat.run(backend=runtime, max_new_tokens=7, tools=tools, tool_choice="auto")
        sw.function(lambda s: s.__iadd__(sw.user("U") + sw.assistant(SCHEMA))).run(backend=runtime)
        plain.run(backend=runtime, **options)
    assert (state["x"], state.get_meta_info("x")["cached_tokens"]) == ("hi", 2)
    assert state.get_meta_info("x")["logprobs"] == CHAT["choices"][0]["logprobs"]  # type: ignore[index]
    assert wire.headers[0]["authorization"] == "Bearer k"
    common = {"temperature": 0.5, "stop": ["a"], "seed": 1, "logit_bias": {"5": 1.0}, "model": "m"}
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    assert wire.sent[0] == (
        "/v1/chat/completions",
        {**common, "messages": messages, "max_tokens": 128, "logprobs": True, "top_logprobs": 2},
    )
    assert wire.sent[1][1]["tools"] == tools
    assert wire.sent[1][1]["max_tokens"] == 7
    schema = wire.sent[2][1]["response_format"]["json_schema"]
    assert (schema["strict"], schema["schema"]) == (True, {"type": "object"})
    assert wire.sent[3] == ("/v1/completions", {**common, "prompt": "U", "max_tokens": 128})


SCHEMA = sw.gen("x", json_schema={"type": "object"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", 5), ("min_p", 0.5), ("min_tokens", 1), ("repetition_penalty", 1.5),
        ("regex", "x"), ("ebnf", "x"), ("grammar", "x"), ("structural_tag", {}),
        ("on_budget", "cut"),
        ("ignore_eos", True), ("stop_token_ids", [1]), ("logprob_start_len", 0), ("priority", 1),
        ("cache_salt", "x"), ("stop_regex", "x"), ("lenient", True), ("whitespace", 1),
        ("skip_special_tokens", False), ("no_stop_trim", True),
    ],
)  # fmt: skip
def test_what_openai_cannot_do_is_refused_by_name(name: str, value: Any) -> None:
    with openai(standard) as (wire, runtime):
        for program in (chat, plain):
            with pytest.raises(sw.Unsupported, match=name) as caught:
                program.run(backend=runtime, return_logprob=True, **{name: value})
            assert caught.value.name == name
    assert not wire.sent


def test_select_and_begun_messages_are_refused_or_continued() -> None:
    with openai(standard) as (_, runtime):
        with pytest.raises(sw.Unsupported, match="select"):
            sw.function(lambda s: s.__iadd__("x" + sw.select("x", ["a"]))).run(backend=runtime)
        with pytest.raises(sw.Unsupported, match="text of the assistant's before a gen"):
            chat.run("Well, ", backend=runtime)
    with openai(standard, continues=True) as (wire, runtime):
        assert chat.run("Well, ", backend=runtime).messages()[-1]["content"] == "Well, hi"
    assert wire.sent[0][1]["continue_final_message"] is True
    assert wire.sent[0][1]["messages"][-1] == {"role": "assistant", "content": "Well, "}
    with (
        openai(standard, is_chat_model=True) as (_, runtime),
        pytest.raises(ValueError, match="takes programs with roles"),
    ):
        plain.run(backend=runtime)
    with (
        openai(standard, is_chat_model=False) as (_, runtime),
        pytest.raises(ValueError, match="takes programs without roles"),
    ):
        chat.run(backend=runtime)
    with pytest.raises(sw.Unsupported, match="chat_template_name"):
        sw.RuntimeEndpoint("http://x", None, None, "chatml")


def events(*events: Any, done: bool = True) -> Callable[[str, Any], httpx.Response]:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    text = "".join([*lines, "data: [DONE]\n\n"] if done else lines)
    return lambda path, body: httpx.Response(200, text=text)


def delta(**told: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": told, "finish_reason": None}]}


def test_streams_are_put_together() -> None:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"a": 1}'}}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    scored = delta(content="b")
    for at, event in enumerate((once := delta(content="a"), scored)):
        event["choices"][0]["logprobs"] = {"content": [{"token": f"{at}", "logprob": -0.5}]}
        event["choices"][0]["token_ids"] = [at]
    answer = events(
        delta(role="assistant", content=""),
        once,
        scored,
        delta(tool_calls=[first]),
        delta(tool_calls=[more]),
        end,
        usage,
    )
    with openai(answer) as (wire, runtime):
        state = chat.run(backend=runtime, stream=True)
        assert list(state.text_iter("x")) == ["a", "b"]
        meta = state.get_meta_info("x")
        assert (meta["completion_tokens"], meta["finish_reason"]["type"]) == (2, "tool_calls")
        assert [each["token"] for each in meta["logprobs"]["content"]] == ["0", "1"]
        assert meta["output_ids"] == [0, 1]
        (call,) = state.messages()[-1]["tool_calls"]
        assert call["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert wire.sent[0][1]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (events(delta(content="a"), done=False), ConnectionError),
        (events(delta(content="a"), {"error": {"message": "broke"}}), sw.ServerError),
        (lambda path, body: httpx.Response(500, text="oops"), sw.ServerError),
        (lambda path, body: httpx.Response(503, json={"error": "full"}), sw.ServerError),
    ],
)
def test_broken_answers_are_errors(answer: Any, error: Any) -> None:
    with openai(answer) as (_, runtime):
        with pytest.raises(error):
            list(chat.run(backend=runtime, stream=True).text_iter("x"))
        if error is sw.ServerError:
            with pytest.raises(error):
                chat.run(backend=runtime)


def test_a_server_tells_how_it_is_set() -> None:
    wire = Wire(lambda path, body: {"path": path})
    with sw.Server("http://x/", transport=httpx.MockTransport(wire)) as runtime:
        assert sw.get_server_info(runtime) == {"path": "/server_info"}
    with pytest.raises(sw.Unsupported, match="Scripted does not support get_server_info"):
        sw.get_server_info(sw.Scripted([]))


NATIVE = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}


@pytest.mark.parametrize("name", sorted(UNUSUAL))
@pytest.mark.parametrize("program", [chat, plain], ids=["chat", "plain"])
@pytest.mark.parametrize("logprobs", [False, True])
def test_c087_every_parameter_reaches_a_server(name: str, program: Any, logprobs: bool) -> None:
    """C087: under the name of the route that is asked, or it is refused by name."""
    value = {"1": 2.0} if name == "logit_bias" else UNUSUAL[name]
    logprobs = logprobs or name in DETAILS
    native = {"text": "x", "output_ids": [], "meta_info": {}}

    def answer(path: str, body: Any) -> Any:
        if path == "/tokenize":
            return {"tokens": [1, 2, 3, 4, 5]}
        return [native, native] if path == "/generate" else standard(path, body)

    wire = Wire(answer)
    beside: dict[str, Any] = (
        {"return_logprob": True} if logprobs and name != "return_logprob" else {}
    )
    with sw.Server("http://x/", transport=httpx.MockTransport(wire)) as runtime:
        asked = sw.gen("x", **{name: UNUSUAL[name]}, **beside)
        asking = sw.function(
            lambda s: s.__iadd__(sw.user("u") + sw.assistant(asked) if program is chat else asked)
        )
        if name == "stop_regex" or (name in OF_CHATS and (logprobs or program is plain)):
            with pytest.raises(sw.Unsupported, match=name):
                asking.run(backend=runtime)
            return
        asking.run(backend=runtime)
    path, body = wire.sent[-1]
    if path == "/generate" and name not in ("cache_salt", "priority", "return_logprob", *DETAILS):
        body = body["sampling_params"]
        name = NATIVE.get(name, name)
    sent = body[name]
    assert sent == (list(value) if isinstance(value, tuple) else value)


def test_a_server_gets_all_that_could_differ_from_its_defaults() -> None:
    wire = Wire(standard)
    with sw.Server("http://x/", "key", transport=httpx.MockTransport(wire)) as runtime:
        chat.run("Well, ", regex="a+", backend=runtime, temperature=0.0)
        plain.run(backend=runtime, ignore_eos=True)
    path, body = wire.sent[0]
    assert path == "/v1/chat/completions"
    assert body["messages"][-1] == {"role": "assistant", "content": "Well, "}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert (body["regex"], body["temperature"], body["top_k"], body["max_tokens"]) == (
        "a+", 0.0, -1, 128,
    )  # fmt: skip
    assert wire.headers[0]["authorization"] == "Bearer key"
    assert wire.sent[1][1]["ignore_eos"] is True
    assert wire.sent[1][1]["prompt"] == "U"
