"""Tools behind a real server: its model knows none, so that all is done by our own telling."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "agent_loop.py"


def tool(name: str, properties: Mapping[str, Any], **more: Any) -> Any:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


WEATHER = tool(
    "get_weather",
    {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1}},
    description="Tells the weather of a city.",
)
ADD = tool("add", {"a": {"type": "integer"}, "b": {"type": "integer"}}, strict=False)
NOW: Any = {"type": "function", "function": {"name": "now", "description": "Tells the time."}}
TOOLS = [WEATHER, ADD, NOW]
SCHEMAS = {t["function"]["name"]: t["function"].get("parameters") for t in TOOLS}
NAMED: Any = {"type": "function", "function": {"name": "add"}}


def call(number: int, name: str, arguments: Any) -> Any:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"c{number}", "type": "function", "function": function}


def example(number: int, city: str) -> list[Any]:
    """Turns that show a small model what is wanted."""
    arguments = {"city": city, "days": 1}
    return [
        {"role": "user", "content": f"How is the weather in {city}?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call(number, "get_weather", arguments)],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": "It rains."},
        {"role": "assistant", "content": f"It rains in {city}."},
    ]


SHOWN = [
    *(part for i, city in enumerate(("Oslo", "Rome", "Lima")) for part in example(i, city)),
    {"role": "user", "content": "How is the weather in Cairo?"},
]


@pytest.fixture
def client(server: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, question: str | list[Any] = "Add 17 and 25.", **fields: Any) -> Any:
    messages = [{"role": "user", "content": question}] if isinstance(question, str) else question
    asked = {"tools": TOOLS, "temperature": 0, "max_tokens": 100, "seed": 5, **fields}
    return client.chat.completions.create(model="default", messages=messages, **asked)


def check_calls(message: ChatCompletionMessage) -> list[Any]:
    """The calls of an answer, all of which keep to their schemas."""
    assert message.tool_calls != []
    for each in message.tool_calls or ():
        assert each.type == "function"
        schema = SCHEMAS[each.function.name]
        arguments = json.loads(each.function.arguments)
        if schema is None:
            assert arguments == {}
        else:
            assert jsonschema_rs.is_valid(schema, arguments)
            assert list(arguments) == list(schema["properties"])
    return list(message.tool_calls or ())


def streamed(client: openai.OpenAI, *question: Any, **fields: Any) -> tuple[Any, Any, str]:
    """Content, calls and finish reason of a stream."""
    content, calls, reason = None, [], ""
    for chunk in ask(client, *question, stream=True, **fields):
        (choice,) = chunk.choices
        reason = choice.finish_reason or reason
        if choice.delta.content is not None:
            content = (content or "") + choice.delta.content
        for part in choice.delta.tool_calls or ():
            if part.id is not None:
                assert part.index == len(calls)
                calls.append([part.function.name, ""])
            calls[part.index][1] += part.function.arguments
    return content, calls, reason


def whole(reply: Any) -> tuple[Any, Any, str]:
    """The same of an answer that is not streamed."""
    (choice,) = reply.choices
    calls = [[c.function.name, c.function.arguments] for c in check_calls(choice.message)]
    return choice.message.content, calls, choice.finish_reason


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("single", [True, False])
def test_c079_required_calls_and_streams_alike(
    client: openai.OpenAI, temperature: int, single: bool
) -> None:
    fields = {
        "tool_choice": "required",
        "temperature": temperature,
        "parallel_tool_calls": not single,
    }
    content, calls, reason = whole(ask(client, **fields))
    assert content is None
    assert calls
    assert len(calls) == 1 or not single
    assert reason == "tool_calls"
    assert streamed(client, **fields) == (content, calls, reason)


def test_c079_named_calls_this_function_once(client: openai.OpenAI) -> None:
    content, calls, reason = whole(ask(client, tool_choice=NAMED))
    assert [name for name, _ in calls] == ["add"]
    assert content is None
    assert reason == "stop"
    assert streamed(client, tool_choice=NAMED) == (content, calls, reason)


def test_a_function_without_parameters_is_called_with_none(client: openai.OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "now"}}
    assert whole(ask(client, tool_choice=choice))[1] == [["now", "{}"]]


@pytest.mark.parametrize("seed", range(6))
def test_auto_holds_the_calls_that_the_model_chooses(client: openai.OpenAI, seed: int) -> None:
    """Whatever it does: calls keep to their schemas, text has no marks, streams are the same."""
    fields = {"temperature": 0 if seed == 0 else 1.0, "seed": seed, "max_tokens": 60}
    content, calls, reason = whole(ask(client, SHOWN, **fields))
    assert "<tool_call>" not in (content or "")
    if seed == 0:
        assert [name for name, _ in calls] == ["get_weather"]
    if reason != "length":
        assert reason == ("tool_calls" if calls else "stop")
    assert streamed(client, SHOWN, **fields) == (content, calls, reason)


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_text_beside_tools_is_cut_by_its_budget(client: openai.OpenAI, choice: str) -> None:
    """C079: free text that reaches its budget ends with ``length``, as it does without tools."""
    question = "Tell me a long story about a fox."
    reply = ask(client, question, tool_choice=choice, max_tokens=12)
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 12
    short = ask(client, SHOWN, tool_choice=choice, max_tokens=5)  # no room for a call
    assert short.choices[0].message.tool_calls is None
    assert short.choices[0].message.content


def test_none_never_calls_and_finds_the_same_prefix(client: openai.OpenAI) -> None:
    first = ask(client, SHOWN)
    assert check_calls(first.choices[0].message)
    second = ask(client, SHOWN, tool_choice="none")
    assert second.choices[0].message.tool_calls is None
    assert "<tool_call>" not in second.choices[0].message.content
    assert second.choices[0].finish_reason in ("stop", "length")
    assert second.usage.prompt_tokens == first.usage.prompt_tokens
    assert second.usage.prompt_tokens_details.cached_tokens == first.usage.prompt_tokens - 1


def test_the_next_turn_finds_the_call_in_the_cache(client: openai.OpenAI) -> None:
    """C076: the call is shown as the model wrote it, and its tokens are found again."""
    messages = [{"role": "user", "content": "What is 3 plus 4? Use a tool."}]
    first = ask(client, messages, tool_choice=NAMED)
    message = first.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "7"}
    turns = [*messages, message.model_dump(exclude_none=True), result]
    second = ask(client, turns, tool_choice="none", max_tokens=8)
    cached = second.usage.prompt_tokens_details.cached_tokens
    # The model may close two braces with two tokens, and text does so with one: from there on the
    # 8 tokens of the end mark are others.
    assert cached >= first.usage.prompt_tokens + first.usage.completion_tokens - 3 - 8


@pytest.mark.parametrize("budget", range(3, 60, 4))
def test_a_budget_is_refused_or_enough(client: openai.OpenAI, budget: int) -> None:
    """C079: never half a call; with ``cut`` its beginning, and the reason ``length``."""
    fields = {"tool_choice": "required", "max_tokens": budget}
    try:
        content, calls, reason = whole(ask(client, **fields))
    except openai.BadRequestError as error:
        assert error.param == "max_tokens"  # noqa: PT017 - either way is right
        assert budget < 40
    else:
        assert calls
        assert (content, reason) == (None, "tool_calls")
    cut = {**fields, "extra_body": {"on_budget": "cut"}}
    (choice,) = ask(client, **cut).choices
    assert choice.message.tool_calls != []
    calls = [[c.function.name, c.function.arguments] for c in choice.message.tool_calls or ()]
    assert choice.finish_reason == ("length" if budget < 20 else choice.finish_reason)
    assert streamed(client, **cut) == (choice.message.content, calls, choice.finish_reason)


def test_many_samples_have_calls_of_their_own(client: openai.OpenAI) -> None:
    reply = ask(client, n=4, tool_choice="required", temperature=1, logprobs=True)
    ids = [each.id for choice in reply.choices for each in check_calls(choice.message)]
    assert len(set(ids)) == len(ids) >= 4
    tokens = sum(len(choice.logprobs.content) for choice in reply.choices)
    assert tokens == reply.usage.completion_tokens


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"type": "strng"}}}, "/properties/a"),
        ({"properties": {"a": {"$ref": "https://example.org/x"}}}, ""),
    ],
)
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_what_cannot_be_held_is_refused_with_its_place(
    client: openai.OpenAI, choice: str, schema: Any, place: str
) -> None:
    bad: Any = {"type": "function", "function": {"name": "bad", "parameters": schema}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, tools=[WEATHER, bad], tool_choice=choice, stream=stream)
        assert caught.value.param is not None
        assert caught.value.param.startswith(f"tools[1].function.parameters{place}")
        assert caught.value.code == "constraint_refused"


class Add(BaseModel):
    """Adds two numbers."""

    a: int
    b: int


def test_the_clients_own_tools_are_parsed(client: openai.OpenAI) -> None:
    asked: Any = {
        "model": "default",
        "messages": [{"role": "user", "content": "Add 2 and 3."}],
        "tools": [openai.pydantic_function_tool(Add)],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 60,
        "temperature": 0,
    }
    reply = client.chat.completions.parse(**asked)
    calls = reply.choices[0].message.tool_calls
    assert calls is not None
    assert isinstance(calls[0].function.parsed_arguments, Add)
    with client.chat.completions.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0].message
    assert "tool_calls.function.arguments.done" in kinds
    assert final.tool_calls is not None
    assert final.tool_calls[0].function.parsed_arguments == calls[0].function.parsed_arguments
    assert final.content is None


def test_an_agent_loops_until_it_has_an_answer(server: Any) -> None:
    command = [sys.executable, str(EXAMPLE), server.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "call: " in done.stdout
    assert "tool: " in done.stdout


def test_the_format_is_told(server: Any) -> None:
    assert server.request("GET", "/server_info")[1]["tool_format"] == "plain"


TEMPLATE = """
{%- if tools %}{{- 'T:' + (tools | tojson) + '\\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.tool_calls %}{{- 'A:' }}
{%- for call in m.tool_calls %}
{{- '[TOOL_CALLS] [' if loop.first else ', ' }}{{- call.function | tojson }}
{%- endfor %}{{- ']\\n' }}
{%- else %}{{- m.role[0] | upper + ':' + m.content + '\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- 'A:' }}{%- endif %}"""


def test_a_model_whose_template_knows_tools(start: Any, tiny_model: str, tmp_path: Path) -> None:
    """Random weights write random arguments, and yet all calls are what they must be."""
    path = tmp_path / "template.jinja"
    path.write_text(TEMPLATE)
    server = start(tiny_model, "--port", "0", "--kv-tokens", "9000", "--chat-template", str(path))
    server.ready()
    assert server.request("GET", "/server_info")[1]["tool_format"] == "mistral"
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        for seed in range(4):
            fields = {"tool_choice": "required", "temperature": 1, "max_tokens": 300, "seed": seed}
            content, calls, reason = whole(ask(client, **fields))
            assert (content, reason) == (None, "tool_calls")
            assert streamed(client, **fields) == (content, calls, reason)
        reply = ask(client, n=8, temperature=2, max_tokens=60)
        for choice in reply.choices:
            check_calls(choice.message)
            assert "[TOOL_CALLS]" not in (choice.message.content or "")
