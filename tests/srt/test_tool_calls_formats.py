"""Formats of calls: which one a template asks for, and turns that are found again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from sapwood.srt.chat_template import ChatTemplate
from sapwood.srt.errors import RequestError
from sapwood.srt.tokenizer import Tokenizer
from sapwood.srt.tool_calls import CallFormat, Tool, ToolUse, chosen_format, in_call_order
from sapwood.srt.tool_calls.arguments import arguments_of, dumped, respaced
from sapwood.srt.tool_calls.plain import introduction

QWEN = """
{%- if tools %}{{- '<|im_start|>system\\nTools:' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif m.tool_calls %}
{{- '<|im_start|>assistant' }}
{%- if m.content %}{{- '\\n' + m.content }}{%- endif %}
{%- for call in m.tool_calls %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

LLAMA = """
{%- if tools %}
{{- '<|im_start|>system\\n' + (tools | tojson(indent=4)) + '<|im_end|>' }}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{- '<|im_start|>ipython\\n' + (m.content | tojson) + '<|im_end|>' }}
{%- elif m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{- raise_exception('one call at once') }}{%- endif %}
{%- set call = m.tool_calls[0].function %}
{{- '<|im_start|>assistant\\n{"name": "' + call.name + '", "parameters": ' }}
{{- call.arguments | tojson }}{{- '}<|im_end|>' }}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

MISTRAL = """
{%- for m in messages %}
{%- if m.role == 'user' %}
{%- if tools and loop.last %}{{- '[TOOLS]' + (tools | tojson) + '[/TOOLS]' }}{%- endif %}
{{- '[INST]' + m.content + '[/INST]' }}
{%- elif m.tool_calls %}
{{- '[TOOL_CALLS]SPACE[' }}
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{- raise_exception('ids have nine characters') }}{%- endif %}
{%- set out = call.function | tojson %}
{{- out[:-1] + ', "id": "' + call.id + '"}' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}
{%- endfor %}{{- ']<|im_end|>' }}
{%- elif m.role == 'tool' %}
{{- '[RESULT]' + m.tool_call_id + ' ' + m.content + '[/RESULT]' }}
{%- else %}{{- m.content + '<|im_end|>' }}{%- endif %}
{%- endfor %}"""

CODER = QWEN.replace('{"name": "', "<function=").replace('", "arguments": ', ">")
GEMMA = """
{%- for m in messages %}
{%- if m.role == 'system' %}{{- raise_exception('no system role') }}{%- endif %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('in turns') }}{%- endif %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
CHATML = """
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
TEMPLATES = {
    "hermes": QWEN,
    "llama3": LLAMA,
    "mistral": MISTRAL.replace("SPACE", " "),
    "tight": MISTRAL.replace("SPACE", ""),
    "plain": CHATML,
    "gemma": GEMMA,
    "coder": CODER,
}
EXPECTED = {"tight": "mistral", "gemma": "plain", "coder": "plain"}

SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "number"}}}'
TOOLS = [Tool("weather", "tells the weather", SCHEMA), Tool("now")]
ASKED = {"role": "user", "content": "How is the weather?"}


@pytest.fixture
def tokenizer(byte_level_json: Callable[..., dict[str, Any]]) -> Tokenizer:
    special = ("<|im_start|>", "<|im_end|>", "[TOOL_CALLS]", "<|python_tag|>")
    return Tokenizer(
        byte_level_json(special=special, added=("<tool_call>", "</tool_call>")),
        special_tokens={"eos_token": "<|im_end|>"},
    )


class Chat:
    """A template with the format that it asks for."""

    def __init__(self, source: str, tokenizer: Tokenizer, form: str = "auto") -> None:
        self.template = ChatTemplate({"default": source}, tokenizer)
        self.format: CallFormat = chosen_format(form, self._tried)

    def _tried(self, messages: Sequence[Any], tools: Any) -> str | None:
        try:
            return self.template.render(messages, tools=tools)
        except RequestError:
            return None

    def ids(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        tools = [tool.shown() for tool in TOOLS] if self.format.in_template else None
        given = self.format.messages(in_call_order(messages), TOOLS)
        return self.template.encode(given, tools=tools)


def turn(form: CallFormat, calls: Sequence[tuple[str, str]], content: str | None) -> dict[str, Any]:
    """An answer with calls, as a client sends it back."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {
                "id": form.call_id(str(i)),
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for i, (name, arguments) in enumerate(calls)
        ],
    }


def results(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {i}"}
        for i, call in enumerate(message["tool_calls"])
    ]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_format_is_found_by_how_the_template_writes(name: str, tokenizer: Tokenizer) -> None:
    chat = Chat(TEMPLATES[name], tokenizer)
    assert chat.format.name == EXPECTED.get(name, name)
    assert ("weather" in tokenizer.decode(chat.ids([ASKED]), skip_special=False)) is True


def test_the_format_can_be_named(tokenizer: Tokenizer) -> None:
    assert Chat(QWEN, tokenizer, "plain").format.name == "plain"
    assert Chat(CHATML, tokenizer, "llama3").format.name == "llama3"
    tight = Chat(TEMPLATES["tight"], tokenizer, "mistral").format
    assert tight.layout.prefix == "[TOOL_CALLS]["


WRITTEN = '{"city": "Oslo \\u00e9\\n", "n": 2.50, "x": [1e2, {}], "weather": true}'
CALLS = [("weather", WRITTEN), ("now", "{}")]


CALLS_ALONE = ("llama3", "mistral", "tight")
"""Templates that show no text beside calls."""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (name, content)
        for name in TEMPLATES
        for content in ([None, ""] if name in CALLS_ALONE else [None, "", "I look."])
    ],
)
def test_a_turn_with_calls_is_found_again(
    name: str, content: str | None, tokenizer: Tokenizer
) -> None:
    """C076: prompt and answer are the start of the next prompt, token for token, also where the
    client spaces the arguments in its own way."""
    chat = Chat(TEMPLATES[name], tokenizer)
    layout = chat.format.layout
    calls = CALLS if layout.several else CALLS[:1]
    written = layout.run(calls)
    if "mistral" in (name, EXPECTED.get(name)):
        written = layout.prefix + layout.call(*CALLS[0])[: -len(layout.tail)]  # then comes the id
    text = f"{content}\n{written}" if content else written
    message = turn(chat.format, [(n, a.replace('", "', '","')) for n, a in calls], content)
    start = [*chat.ids([ASKED]), *tokenizer.encode(text)]
    second = chat.ids([ASKED, message, *reversed(results(message))])
    if "mistral" in (name, EXPECTED.get(name)):
        # It tells of tools in the last message, so that its prompts do not continue each other.
        start = tokenizer.encode(text)
        assert any(second[i : i + len(start)] == start for i in range(len(second)))
    else:
        assert second[: len(start)] == start
    shown = tokenizer.decode(second, skip_special=False)
    assert shown.index("result 0") < shown.find("result 1") or not layout.several


def test_ids_of_others_are_made_to_fit_mistral(tokenizer: Tokenizer) -> None:
    chat = Chat(TEMPLATES["mistral"], tokenizer)
    message = turn(chat.format, CALLS, None)
    for i, call in enumerate(message["tool_calls"]):
        call["id"] = f"call_{i:032d}"
    shown = tokenizer.decode(chat.ids([ASKED, message, *results(message)]), skip_special=False)
    (first, second) = (chat.format.call_id(f"call_{i:032d}") for i in range(2))
    assert f'"id": "{first}"' in shown
    assert f"[RESULT]{second} result 1" in shown
    assert len(first) == 9
    assert first.isalnum()


def test_without_a_system_role_the_first_question_is_introduced(tokenizer: Tokenizer) -> None:
    chat = Chat(GEMMA, tokenizer)
    shown = tokenizer.decode(chat.ids([ASKED]), skip_special=False)
    assert shown.startswith("<|im_start|>user\nYou can call functions.")
    assert shown.index("weather") < shown.index(ASKED["content"])


def test_a_system_text_keeps_its_place_before_the_introduction(tokenizer: Tokenizer) -> None:
    chat = Chat(CHATML, tokenizer)
    for content in ("Be brief.", [{"type": "text", "text": "Be brief."}]):
        system = {"role": "system", "content": content}
        shown = tokenizer.decode(chat.ids([system, ASKED]), skip_special=False)
        assert shown.startswith("<|im_start|>system\nBe brief.\n\nYou can call functions.")
        assert system["content"] == content


def test_the_introduction_names_each_tool_and_its_schema() -> None:
    text = introduction(TOOLS)
    assert '{"name": "weather", "description": "tells the weather", "parameters": {' in text
    assert '\n{"name": "now"}\n' in text


def test_results_take_the_order_of_their_calls() -> None:
    calls = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}

    def said(*ids: str | None) -> list[Mapping[str, Any]]:
        return [{"role": "tool", "tool_call_id": each} for each in ids]

    assert in_call_order([calls, *said("c", "a"), ASKED]) == [calls, *said("a", "c"), ASKED]
    for odd in (("x", "a"), ("c", None), ("c", "c")):
        assert in_call_order([calls, *said(*odd)]) == [calls, *said(*odd)]
    assert in_call_order(said("b", "a")) == said("b", "a")


@pytest.mark.parametrize(
    ("given", "spaced"),
    [
        ('{"a":1,"b":[1,2]}', '{"a": 1, "b": [1, 2]}'),
        ('{ "a" :\n "x,y:{}\\"[" }', '{"a": "x,y:{}\\"["}'),
        ("{}", "{}"),
        ('{"a": -1.50e+3, "b": null}', '{"a": -1.50e+3, "b": null}'),
    ],
)
def test_arguments_are_spelt_as_they_came(given: str, spaced: str) -> None:
    assert respaced(given) == spaced
    arguments = arguments_of(given)
    assert not isinstance(arguments, str)
    assert arguments == json.loads(given)
    assert dumped([{"f": arguments}]) == f'[{{"f": {spaced}}}]'


@pytest.mark.parametrize("text", ["not json", "[1]", '"x"', "{", "NaN"])
def test_what_is_no_object_stays_text(text: str) -> None:
    assert arguments_of(text) == text


def test_arguments_without_text_are_none() -> None:
    assert arguments_of(" ") == {}


def test_tools_are_held_to_objects() -> None:
    held = [Tool("f", None, schema).held_to for schema in ("{ }", '{"maxItems": 1e400}', SCHEMA)]
    assert held[0] == '{"type": "object" }'
    assert held[1] == '{"type": "object", "maxItems": 1e400}'
    assert held[2] == SCHEMA
    assert json.loads(Tool("f").held_to)["additionalProperties"] is False


@pytest.mark.parametrize("name", ["hermes", "llama3", "mistral"])
def test_tags_belong_to_their_tools(name: str, tokenizer: Tokenizer) -> None:
    layout = Chat(TEMPLATES[name], tokenizer).format.layout
    for use in (ToolUse("auto"), ToolUse("required")):
        tags = layout.constraint(TOOLS, use).tags
        each = len(tags) // len(TOOLS)
        assert [TOOLS[i // each].name in tag.begin for i, tag in enumerate(tags)] == [True] * len(
            tags
        )
    heads = [tag.begin for tag in layout.constraint(TOOLS, ToolUse("auto")).tags]
    triggers = layout.marks([tool.name for tool in TOOLS])
    assert all((layout.prefix + head).startswith(triggers) for head in heads)
