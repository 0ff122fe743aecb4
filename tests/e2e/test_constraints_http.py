"""Constrained requests to real servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["tall", "kind", "old"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
PLACE: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "north": {"type": "boolean"}},
    "required": ["city", "north"],
    "additionalProperties": False,
}
MALFORMED: list[Any] = [
    {"type": "strng"},
    {"type": "object", "properties": [1, 2]},
    {"enum": []},
    {"type": "array", "items": "integer"},
    {"$ref": "#/$defs/Nope"},
    {"pattern": "([a-z", "type": "string"},
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "(x"}}},
    {"$ref": "https://example.org/schema.json"},
    {"type": 5},
    {"required": "a", "type": "object"},
    {"minimum": "5", "type": "integer"},
    False,
    {"type": "object", "properties": {f"p{i}": {"type": "strng"} for i in range(5000)}},
]


def deep(levels: int) -> Any:
    schema: Any = {"type": "strng"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def chat(text: str = "Describe a person.", **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 100}
    return {**body, **fields}


def held_to(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "r", "schema": schema}}


def answered(server: Any, path: str, body: Any) -> Any:
    status, reply = server.request("POST", path, body)
    assert status == 200, reply
    return reply


def refused(server: Any, path: str, body: Any) -> dict[str, Any]:
    status, reply = server.request("POST", path, body)
    assert status == 400, reply
    error: dict[str, Any] = reply["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


def is_person(text: str) -> bool:
    value = json.loads(text)
    return (
        list(value) == ["name", "age", "tags"]
        and len(value["name"]) <= 20
        and 0 <= value["age"] <= 150
        and set(value["tags"]) <= {"tall", "kind", "old"}
    )


def is_place(text: str) -> bool:
    value = json.loads(text)
    return list(value) == ["city", "north"] and isinstance(value["north"], bool)


@pytest.fixture
def client(server: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


# C001, C021: what is refused, and that nobody else notices


def test_c001_malformed_schemas_disturb_nobody(server: Any) -> None:
    ask = {"prompt": "Once upon a time", "max_tokens": 120, "temperature": 0, "ignore_eos": True}
    alone = [answered(server, COMPLETIONS, {**ask, "seed": i})["choices"][0] for i in range(1)]
    processes = {role: child.pid for role, child in server.children().items()}
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(streamed_text, server, ask) for _ in range(4)]
        for schema in [*MALFORMED, deep(100)]:
            error = refused(server, CHAT, chat(response_format=held_to(schema)))
            assert error["param"].startswith("response_format.json_schema.schema")
            assert error["message"]
        for schema in ([1, 2], 5, "x", deep(400)):
            error = refused(server, CHAT, chat(response_format=held_to(schema)))
            assert error["param"] == "response_format.json_schema.schema"
        for text in (stream.result(60) for stream in streams):
            assert text == alone[0]["text"]
    reply = answered(server, CHAT, chat(response_format=held_to(PERSON)))
    assert is_person(reply["choices"][0]["message"]["content"])
    assert {role: child.pid for role, child in server.children().items()} == processes
    server.until(lambda: server.metric("sapwood_running_requests") == 0, "all done")


def streamed_text(server: Any, body: dict[str, Any]) -> str:
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", COMPLETIONS, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        text = response.read().decode()
    assert response.status == 200, text
    lines = text.split("\n\n")
    assert lines[-2] == "data: [DONE]"
    return "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-2])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 4])
def test_c001_refusals_point_into_the_schema(server: Any, stream: bool, n: int) -> None:
    schema = {"type": "object", "properties": {"a/b": {"type": "strng"}}}
    body = chat(response_format=held_to(schema), stream=stream, n=n)
    error = refused(server, CHAT, body)
    assert error["code"] == "constraint_refused"
    assert error["param"] == "response_format.json_schema.schema/properties/a~1b"
    assert "type" in error["message"]
    given = [{}, {"json_schema": schema}]
    error = refused(server, GENERATE, {"text": ["x", "y"], "sampling_params": given})
    assert error["param"] == "sampling_params[1].json_schema/properties/a~1b"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"regex": "a)(b"}, "regex"),
        ({"regex": "([a-z"}, "regex"),
        ({"regex": "(?=x)y"}, "regex"),
        ({"ebnf": "root ::= nope"}, "ebnf"),
        ({"ebnf": "no grammar"}, "ebnf"),
        ({"grammar": {"syntax": "lark", "definition": "start: nope"}}, "grammar.definition"),
        ({"grammar": {"syntax": "lark", "definition": "start: start"}}, "grammar.definition"),
        ({"ebnf": "root ::= root"}, "ebnf"),
        ({"grammar": {"syntax": "lark", "definition": 'start: "a"+'}}, "grammar.definition"),
        ({"grammar": {"syntax": "lark", "definition": 'x: "a"'}}, "grammar.definition"),
    ],
)
def test_c001_malformed_expressions_and_grammars(
    server: Any, fields: dict[str, Any], param: str
) -> None:
    error = refused(server, COMPLETIONS, {"prompt": "x", **fields})
    assert error["param"] == param
    assert error["code"] == "constraint_refused"


def test_c021_each_right_shape_is_applied(server: Any, client: openai.OpenAI) -> None:
    forms = [held_to(PERSON), {**held_to(PERSON)}]
    forms[1]["json_schema"] = {"name": "r", "strict": True, "schema": PERSON}
    texts = {
        answered(server, CHAT, chat(response_format=form))["choices"][0]["message"]["content"]
        for form in forms
    }
    assert len(texts) == 1
    assert is_person(texts.pop())
    params = {"max_new_tokens": 100, "temperature": 0}
    natives = [
        answered(
            server, GENERATE, {"text": "A person:", "sampling_params": {**params, **constraint}}
        )["text"]
        for constraint in ({"json_schema": PERSON}, {"json_schema": json.dumps(PERSON, indent=1)})
    ]
    assert natives[0] == natives[1]
    assert is_person(natives[0])
    body = chat(response_format={"type": "json_object"}, max_tokens=200)
    reply = answered(server, CHAT, body)["choices"][0]
    assert isinstance(json.loads(reply["message"]["content"]), dict)
    assert reply["finish_reason"] == "stop"
    free = {
        answered(server, CHAT, chat(response_format=form, max_tokens=8))["choices"][0]["message"][
            "content"
        ]
        for form in (None, {"type": "text"})
    }
    assert len(free) == 1
    assert "{" not in free.pop()


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"regex": "[a-f]{3,6}-[0-9]+z"}, "[a-f]{3,6}-[0-9]+z"),
        ({"choice": ["spruce", "pine", "fir"]}, "spruce|pine|fir"),
        ({"guided_choice": ["spruce"]}, "spruce"),
        ({"ebnf": 'root ::= "<" [a-c]+ ">" '}, "<[a-c]+>"),
        (
            {
                "grammar": {"syntax": "lark", "definition": 'start: "<" /[a-c]{1,9}/ ">"'},
                "on_budget": "cut",
            },
            "<[a-c]+>",
        ),
        ({"structured_outputs": {"regex": "[0-9]{4}"}}, "[0-9]{4}"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_regular_and_grammar_constraints(
    server: Any, fields: dict[str, Any], pattern: str, stream: bool
) -> None:
    body = {"prompt": "Say:", "temperature": 1, "seed": 5, "max_tokens": 40, **fields}
    if stream:
        text = streamed_text(server, body)
    else:
        choice = answered(server, COMPLETIONS, body)["choices"][0]
        text = choice["text"]
        assert choice["finish_reason"] == "stop"
        assert choice["text"] == streamed_text(server, body)
    assert re.fullmatch(pattern, text)


def test_structural_tags(server: Any) -> None:
    tag = {
        "type": "tag",
        "begin": "<call>",
        "content": {"type": "json_schema", "json_schema": PLACE},
        "end": "</call>",
    }
    body = {"prompt": "Where? I say <call>", "temperature": 0, "max_tokens": 120}
    one = {"type": "structural_tag", "format": tag}
    text = answered(server, COMPLETIONS, {**body, "structural_tag": one})["choices"][0]["text"]
    within = re.fullmatch(r"<call>(.*)</call>", text)
    assert within
    assert is_place(within[1])
    form = {"type": "triggered_tags", "triggers": ["<call"], "tags": [tag], "at_least_one": True}
    several = {"type": "structural_tag", "format": form}
    text = answered(server, COMPLETIONS, {**body, "structural_tag": several})["choices"][0]["text"]
    assert text.count("<call") >= 1
    for part in text.split("<call")[1:]:
        within = re.match(r">(\{.*?\})</call>", part)
        assert within
        assert is_place(within[1])
    structures = [{"begin": "<call>", "schema": PLACE, "end": "</call>"}]
    flat = {"type": "structural_tag", "structures": structures, "triggers": ["<call"]}
    reply = answered(server, CHAT, chat(response_format=flat))["choices"][0]
    assert reply["message"]["content"]


# C015: blanks


@pytest.mark.parametrize("whitespace", [0, 3])
def test_c015_blanks_between_parts_are_bounded(server: Any, whitespace: int) -> None:
    """A model that likes nothing better than blanks still closes what it has opened."""
    blanks = [" ", "\n", "\t", "  ", "   ", "\n\n", "    "]
    tokens = answered(server, "/tokenize", {"prompt": blanks})["tokens"]
    bias = {str(ids[0]): 100 for ids in tokens if len(ids) == 1}
    assert len(bias) >= 3
    schema = {
        "type": "object",
        "properties": {
            "s": {"type": "string", "maxLength": 12},
            "a": {
                "type": "array",
                "items": {"type": "integer", "maximum": 999, "minimum": 0},
                "maxItems": 4,
            },
        },
        "required": ["s", "a"],
        "additionalProperties": False,
    }
    fields = {"json_schema": schema, "whitespace": whitespace, "logit_bias": bias}
    reply = answered(server, CHAT, chat(**fields, max_tokens=400))["choices"][0]
    text = reply["message"]["content"]
    value = json.loads(text)
    assert list(value) == ["s", "a"]
    assert text == text.rstrip(), "nothing after the final brace"
    outside = re.sub(r'"[^"]*"', '""', text)
    most = max((len(run) for run in re.findall(r"\s+", outside)), default=0)
    if whitespace:
        assert 1 < most <= whitespace
    else:
        assert json.dumps(value, ensure_ascii=False) == text
    assert value["s"].strip() == "", "blanks inside strings stay free"


# C017: budgets


SENTENCE = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 5}},
    "required": ["text"],
    "additionalProperties": False,
}


def test_c017_a_budget_below_the_shortest_answer_is_refused_with_the_number(server: Any) -> None:
    error = refused(server, CHAT, chat(response_format=held_to(SENTENCE), max_tokens=1))
    assert error["param"] == "max_tokens"
    least = max(int(number) for number in re.findall(r"\d+", error["message"]))
    assert 5 < least < 30
    body = {"text": "x", "sampling_params": {"json_schema": SENTENCE, "max_new_tokens": 1}}
    assert refused(server, GENERATE, body)["param"] == "sampling_params.max_new_tokens"
    for budget in (least, least + 1, least + 7):
        body = chat(response_format=held_to(SENTENCE), max_tokens=budget)
        reply = answered(server, CHAT, body)
        assert reply["choices"][0]["finish_reason"] == "stop"
        assert len(json.loads(reply["choices"][0]["message"]["content"])["text"]) >= 5
        assert reply["usage"]["completion_tokens"] <= budget
    error = refused(server, CHAT, chat(response_format=held_to(SENTENCE), max_tokens=least - 1))
    assert str(least) in error["message"]


@pytest.mark.parametrize("budget", [1, 5, 12])
def test_c017_cut_answers_say_that_they_are(
    server: Any, client: openai.OpenAI, budget: int
) -> None:
    schema = {**SENTENCE, "properties": {"text": {"type": "string", "minLength": 60}}}
    body = chat(response_format=held_to(schema), on_budget="cut", max_tokens=60)
    full = answered(server, CHAT, body)
    body["max_tokens"] = budget
    cut = answered(server, CHAT, body)
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == budget
    text = cut["choices"][0]["message"]["content"]
    assert full["choices"][0]["message"]["content"].startswith(text)
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="default",
            messages=body["messages"],
            response_format=Sentence,
            max_tokens=budget,
            temperature=0,
            extra_body={"on_budget": "cut"},
        )


class Sentence(BaseModel):
    text: str = Field(min_length=40)


@pytest.mark.parametrize("on_budget", ["cut", "close"])
def test_c017_complete_on_the_last_token_is_a_stop(
    server: Any, client: openai.OpenAI, on_budget: str
) -> None:
    ask: dict[str, Any] = {"regex": '[a-d]{4}"x', "prompt": "abc", "temperature": 0}
    full = answered(server, COMPLETIONS, {**ask, "max_tokens": 50})
    used = full["usage"]["completion_tokens"]
    exact = answered(server, COMPLETIONS, {**ask, "max_tokens": used, "on_budget": on_budget})
    assert exact["choices"][0]["finish_reason"] == "stop"
    assert exact["choices"][0]["text"] == full["choices"][0]["text"]
    reply = client.chat.completions.parse(
        model="default",
        messages=[{"role": "user", "content": "Say something."}],
        response_format=Sentence,
        max_tokens=60,
    )
    assert reply.choices[0].message.parsed is not None


# C031: one batch


def batch_of(count: int) -> list[dict[str, Any]]:
    kinds: list[dict[str, Any]] = [
        {"ignore_eos": True},
        {"json_schema": PERSON},
        {"json_schema": PLACE},
        {"regex": "[a-c]{5,30}[0-9]z"},
    ]
    return [
        {
            "prompt": f"{i}: " + "some words to be read " * (1 + i * 5 % 23),
            "max_tokens": 60 + 7 * i,
            "temperature": 0,
            **kinds[i % 4],
        }
        for i in range(count)
    ]


def check_kind(i: int, text: str) -> None:
    if i % 4 == 1:
        assert is_person(text)
    elif i % 4 == 2:
        assert is_place(text)
    elif i % 4 == 3:
        assert re.fullmatch("[a-c]{5,30}[0-9]z", text)


def test_c031_free_and_constrained_requests_in_one_batch(
    start: Callable[..., Any], tiny_model: str
) -> None:
    """With chunked prefill, and too few pages for all of them at once."""
    pools = ("--kv-tokens", "3000", "--max-batched-tokens", "64")
    server = start(tiny_model, "--port", "0", *pools).ready()
    bodies = batch_of(16)
    alone = [answered(server, COMPLETIONS, body)["choices"][0]["text"] for body in bodies]
    with ThreadPoolExecutor(16) as pool:
        for _ in range(2):
            replies = list(pool.map(lambda body: answered(server, COMPLETIONS, body), bodies))
            for i, (reply, solo) in enumerate(zip(replies, alone, strict=True)):
                check_kind(i, reply["choices"][0]["text"])
                assert reply["choices"][0]["text"] == solo, i
                assert reply["choices"][0]["finish_reason"] == ("stop" if i % 4 else "length")
            assert server.request("POST", "/flush_cache")[0] == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 3, "temperature": 1, "seed": 4},
        {"min_tokens": 50},
        {"ignore_eos": True},
        {"presence_penalty": 2, "repetition_penalty": 1.5},
        {"temperature": 2, "seed": 1, "top_p": 0.9, "min_p": 0.01},
        {"logprobs": 2},
        {"skip_special_tokens": False},
        {"return_token_ids": True},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_constraints_go_with_other_parameters(server: Any, fields: dict[str, Any]) -> None:
    """The grammar wins: over biases and penalties, and over what holds an answer open."""
    opening = answered(server, "/tokenize", {"prompt": ["{", '{"', " {"]})["tokens"]
    bias = {str(ids[0]): -100 for ids in opening}
    ask = {"prompt": "x", "temperature": 0, "max_tokens": 60, "json_schema": PLACE, **fields}
    reply = answered(server, COMPLETIONS, {**ask, "logit_bias": bias})
    assert len(reply["choices"]) == fields.get("n", 1)
    for choice in reply["choices"]:
        assert is_place(choice["text"])
        assert choice["finish_reason"] == "stop"
        if choice["logprobs"] is not None:
            assert len(choice["logprobs"]["tokens"]) == reply["usage"]["completion_tokens"]
            assert "".join(choice["logprobs"]["tokens"]).startswith(choice["text"])
    if "n" not in fields:
        text = streamed_text(server, {**ask, "logit_bias": bias})
        assert text == reply["choices"][0]["text"]


# C034: stop strings


@pytest.mark.parametrize(
    ("constraint", "stops"),
    [
        ({"json_schema": SENTENCE}, ["\n", "}"]),
        ({"json_schema": PERSON}, ['",']),
        ({"regex": "[a-z]+\\."}, ["."]),
    ],
)
def test_c034_stop_strings_cut_and_say_so(
    server: Any, constraint: dict[str, Any], stops: list[str]
) -> None:
    before = server.metric("sapwood_kv_pages_free")
    ask = {"prompt": "Once", "temperature": 0, "max_tokens": 60, **constraint}
    free = answered(server, COMPLETIONS, ask)["choices"][0]
    assert free["finish_reason"] == "stop"
    assert free.get("matched_stop") not in stops
    stopped = answered(server, COMPLETIONS, {**ask, "stop": stops})["choices"][0]
    assert stopped["finish_reason"] == "stop"
    assert stopped["matched_stop"] in stops
    assert stopped["text"] == free["text"].partition(stopped["matched_stop"])[0]
    native = {key: value for key, value in ask.items() if key not in ("prompt", "max_tokens")}
    native |= {"stop": stops, "max_new_tokens": 60}
    reply = answered(server, GENERATE, {"text": "Once", "sampling_params": native})
    assert reply["text"] == stopped["text"]
    assert reply["meta_info"]["finish_reason"]["matched"] == stopped["matched_stop"]
    server.until(lambda: server.metric("sapwood_running_requests") == 0, "all done")
    used = before - server.metric("sapwood_kv_pages_free")
    assert used < 500, "what stopped has given back all but what the cache keeps"


# Warnings and what the server says of itself


UNENFORCEABLE = {
    "type": "object",
    "properties": {"s": {"type": "string", "maxLength": 10, "$ref": "https://example.org/s"}},
    "required": ["s"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_lenient_lists_what_it_drops(server: Any, stream: bool) -> None:
    error = refused(server, COMPLETIONS, {"prompt": "x", "json_schema": UNENFORCEABLE})
    assert error["param"] == "json_schema/properties/s"
    body = {"prompt": "x", "json_schema": UNENFORCEABLE, "lenient": True, "max_tokens": 60}
    if stream:
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", COMPLETIONS, json.dumps({**body, "stream": True}))
            frames = connection.getresponse().read().decode().split("\n\n")[:-2]
        reply = json.loads(frames[-1][6:])
        assert not any("warnings" in frame for frame in frames[:-1])
    else:
        reply = answered(server, COMPLETIONS, body)
    (warning,) = reply["warnings"]
    assert (warning["pointer"], warning["keyword"]) == ("/properties/s", "$ref")
    assert warning["reason"]


def test_server_info_names_the_engines(server: Any) -> None:
    answered(server, COMPLETIONS, {"prompt": "x", "json_schema": PLACE, "max_tokens": 40})
    status, info = server.request("GET", "/server_info")
    assert status == 200
    assert "llguidance" in json.dumps(info["constraints"])


# The openai client's parse() and stream(), and the examples


class Node(BaseModel):
    """A recursive type: a $ref into $defs, in an anyOf with null."""

    value: int = Field(ge=0, le=9)
    children: list[Node] = Field(max_length=2)


class Report(BaseModel):
    kind: Literal["weather", "traffic"]
    title: str = Field(max_length=20)
    score: float | None
    node: Node | None


def test_parse_takes_pydantic_models(client: openai.OpenAI) -> None:
    for kind in (Report, Node):
        reply = client.chat.completions.parse(
            model="default",
            messages=[{"role": "user", "content": "Report."}],
            response_format=kind,
            max_tokens=90,
            n=2,
        )
        for choice in reply.choices:
            assert isinstance(choice.message.parsed, kind)
            assert choice.finish_reason == "stop"


def test_parse_async_and_streamed_are_the_same(server: Any, client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {
        "model": "default",
        "messages": [{"role": "user", "content": "Report."}],
        "response_format": Report,
        "temperature": 0,
        "max_tokens": 80,
    }
    with client.chat.completions.stream(**ask) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion().choices[0]

    async def parsed() -> Any:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0
        ) as other:
            reply = await other.chat.completions.parse(**ask)
            async with other.chat.completions.stream(**ask) as stream:
                streamed = (await stream.get_final_completion()).choices[0].message.parsed
            return reply.choices[0].message, streamed

    message, streamed = asyncio.run(parsed())
    assert isinstance(final.message.parsed, Report)
    assert message.parsed == streamed == final.message.parsed
    assert message.content == text == final.message.content


@pytest.mark.parametrize("name", ["openai_parse.py", "validate_and_retry.py"])
def test_examples_run(server: Any, name: str) -> None:
    command = [sys.executable, str(EXAMPLES / name), server.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
