"""What holds an answer and what reads it agree: anything that may be written is read as calls whose
arguments keep to their schemas."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jsonschema_rs
import numpy as np
import pytest

from sapwood.constrain.compile import ConstraintCompiler
from sapwood.constrain.matcher import Matcher
from sapwood.constrain.refusal import Refusal
from sapwood.srt.tokenizer import Tokenizer
from sapwood.srt.tool_calls import (
    ArgumentsPiece,
    CallReader,
    CallStart,
    ContentPiece,
    Tool,
    ToolUse,
)
from sapwood.srt.tool_calls.hermes import LAYOUT as HERMES
from sapwood.srt.tool_calls.layout import MAX_CALLS, Layout
from sapwood.srt.tool_calls.llama3 import LAYOUT as LLAMA3
from sapwood.srt.tool_calls.mistral import Mistral

LAYOUTS = {"hermes": HERMES, "llama3": LLAMA3, "mistral": Mistral().layout}
SCHEMAS = {
    "get": {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 20}},
        "required": ["n"],
        "additionalProperties": False,
    },
    "get_all": {
        "properties": {"q": {"type": "string", "maxLength": 5}, "on": {"type": "boolean"}},
        "required": ["q"],
        "additionalProperties": False,
    },
}
TOOLS = [*(Tool(name, None, json.dumps(schema)) for name, schema in SCHEMAS.items()), Tool("now")]
NAMES = [tool.name for tool in TOOLS]


class Model(NamedTuple):
    """A tokenizer whose marks are tokens of their own, as those of models with tools are."""

    tokenizer: Tokenizer
    compiler: ConstraintCompiler


@pytest.fixture
def model(byte_level_json: Callable[..., dict[str, Any]]) -> Model:
    special = ("<|im_end|>", "[TOOL_CALLS]", "<|python_tag|>")
    tokenizer = Tokenizer(
        byte_level_json(("t o", "{ Ċ"), special, ("<tool_call>", "</tool_call>")),
        special_tokens={"eos_token": "<|im_end|>"},
    )
    return Model(tokenizer, ConstraintCompiler(tokenizer.vocabulary, tokenizer.encode_written))


def allowed(matcher: Matcher, size: int) -> list[int]:
    row = np.zeros((size + 31) // 32, np.int32)
    matcher.fill(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")[:size]
    return [int(token) for token in np.flatnonzero(bits)]


def sampled(model: Model, layout: Layout, use: ToolUse, seed: int, budget: int) -> str | None:
    """What random sampling under the constraint writes within a budget; ``None`` where the budget
    is too small."""
    tokenizer = model.tokenizer
    matcher = model.compiler.compile(layout.constraint(TOOLS, use)).matcher()
    if len(matcher.completion()) > budget:
        return None
    rng, ids, remaining = random.Random(seed), [], budget
    while True:
        tokens = allowed(matcher, tokenizer.vocab_size)
        # Towards calls: in free text they would hardly begin.
        begins = [t for t in tokens if t >= 256] or [t for t in tokens if t in b'{"name:<tol_c']
        token = rng.choice(begins) if begins and rng.random() < 0.6 else rng.choice(tokens)
        remaining -= 1
        if token == tokenizer.eos_id:
            return tokenizer.decode(ids, skip_special=False)
        if matcher.advance(token, remaining) != "ok":
            if rng.random() < 0.9:
                remaining += 1
                continue
            end = matcher.completion()
            assert end[-1] == tokenizer.eos_id
            assert len(end) <= remaining + 1
            return tokenizer.decode([*ids, *end[:-1]], skip_special=False)
        ids.append(token)
        if remaining == 0:
            assert not use.forced
            return tokenizer.decode(ids, skip_special=False)  # cut in its text


def read(layout: Layout, use: ToolUse, text: str) -> tuple[str, list[list[str]], bool]:
    reader = CallReader(layout, NAMES, forced=use.forced)
    content, calls = "", []
    for event in [*reader.feed(text), *reader.end()]:
        if isinstance(event, ContentPiece):
            content += event.text
        elif isinstance(event, CallStart):
            calls.append([event.name, ""])
        else:
            assert isinstance(event, ArgumentsPiece)
            calls[event.call][1] += event.text
    return content, calls, reader.complete


def check(layout: Layout, use: ToolUse, text: str) -> int:
    """Reads what was written; the number of calls."""
    content, calls, complete = read(layout, use, text)
    assert not any(trigger in content for trigger in layout.marks(NAMES)), text
    assert complete == bool(calls)
    for name, arguments in calls:
        schema = SCHEMAS.get(name)
        value = json.loads(arguments)
        assert value == {} if schema is None else jsonschema_rs.is_valid(schema, value), text
    if use.forced:
        assert calls
        assert content == ""
    if use.single or (calls and not layout.several):
        assert len(calls) <= 1
    return len(calls)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(
    "use", [ToolUse("auto"), ToolUse("required"), ToolUse("required", True), ToolUse("auto", True)]
)
def test_whatever_may_be_written_is_read(name: str, use: ToolUse, model: Model) -> None:
    layout = LAYOUTS[name]
    texts = [sampled(model, layout, use, seed, 40 + 8 * seed) for seed in range(25)]
    found = [check(layout, use, text) for text in texts if text is not None]
    assert len(found) > 8
    assert sum(found) > 0, texts
    if layout.several and use.mode == "required" and not use.single:
        assert max(found) > 1


@pytest.mark.parametrize("name", LAYOUTS)
def test_c079_none_never_begins_a_call(name: str, model: Model) -> None:
    layout, use = LAYOUTS[name], ToolUse("none")
    for seed in range(8):
        text = sampled(model, layout, use, seed, 60)
        assert text is not None
        assert not any(trigger in text for trigger in layout.marks(NAMES))
        assert read(layout, use, text)[1] == []


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("forced", [True, False])
def test_what_the_history_shows_may_be_written(name: str, forced: bool, model: Model) -> None:
    """Token for token: marks are their own tokens, in the prompt and in what is generated."""
    layout = LAYOUTS[name]
    calls = [("get", '{"n": 7}'), ("get_all", '{"q": "é\\n", "on": true}'), ("now", "{}")]
    text = layout.run(calls if layout.several else calls[:1])
    use = ToolUse("required" if forced else "auto")
    matcher = model.compiler.compile(layout.constraint(TOOLS, use)).matcher()
    ids = model.tokenizer.encode(text)
    for token in ids:
        assert token in allowed(matcher, model.tokenizer.vocab_size), text
        assert matcher.advance(token, 10_000) == "ok"
    assert model.tokenizer.eos_id in allowed(matcher, model.tokenizer.vocab_size)


@pytest.mark.parametrize("name", LAYOUTS)
def test_forced_runs_are_tokenised_as_the_history_is(name: str, model: Model) -> None:
    layout = LAYOUTS[name]
    constraint = layout.constraint([Tool("now")], ToolUse("named", single=True))
    matcher = model.compiler.compile(constraint).matcher()
    ids: list[int] = []
    while not matcher.is_complete:
        run = matcher.forced() or allowed(matcher, model.tokenizer.vocab_size)[:1]
        if run[0] == model.tokenizer.eos_id:
            break
        for token in run:
            assert matcher.advance(token, 10_000) == "ok"
        ids += run
    assert ids == model.tokenizer.encode(layout.run([("now", "{}")]))


def test_refusals_point_to_the_tool(model: Model) -> None:
    bad = Tool("bad", None, '{"properties": {"a": {"type": "strng"}}}')
    for name, layout in LAYOUTS.items():
        tools: Sequence[Tool] = [*TOOLS, bad]
        with pytest.raises(Refusal) as caught:
            model.compiler.compile(layout.constraint(tools, ToolUse("auto")))
        number = 3 * (len(layout.heads))
        assert caught.value.pointer.startswith(f"/tags/{number}/schema/properties/a"), name


ANSWER = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.parametrize("name", LAYOUTS)
def test_beside_json_an_answer_is_a_call_or_json(name: str, model: Model) -> None:
    layout = LAYOUTS[name].beside_json()
    constraint = layout.constraint(TOOLS, ToolUse("auto"), json.dumps(ANSWER))
    compiled = model.compiler.compile(constraint)

    def taken(text: str) -> bool:
        matcher = compiled.matcher()
        for token in model.tokenizer.encode(text):
            if token not in allowed(matcher, model.tokenizer.vocab_size):
                return False
            assert matcher.advance(token, 10_000) == "ok"
        return model.tokenizer.eos_id in allowed(matcher, model.tokenizer.vocab_size)

    call = layout.call("get", '{"n": 7}')
    texts = ['{"name": "<tool_call>", "parameters": {}}', '{"name": "get", "arguments": {}}']
    for text in (call, *texts):
        assert taken(text), text
        reader = CallReader(layout, NAMES, forced=True)
        events = [*reader.feed(text), *reader.end()]
        assert (reader.n_calls == 1) == (text == call)
        assert text == call or events == [ContentPiece(text)]
    for text in ("x", "{}", call + call, texts[0] + call, call + texts[0], " " + call):
        assert not taken(text), text


@pytest.mark.parametrize("name", LAYOUTS)
def test_text_may_be_cut_and_calls_begin_only_where_they_have_room(name: str, model: Model) -> None:
    layout, size = LAYOUTS[name], model.tokenizer.vocab_size
    matcher = model.compiler.compile(layout.constraint(TOOLS, ToolUse("auto"))).matcher()
    for token in model.tokenizer.encode("Hello"):
        assert matcher.advance(token, 0) == "ok"
    trigger = model.tokenizer.encode(layout.marks(NAMES)[0])
    for token in trigger[:-1]:
        assert matcher.advance(token, 20) == "ok"
    least = matcher.fork()
    assert least.advance(trigger[-1], 10_000) == "ok"
    needed = len(least.completion())
    assert needed > 10
    assert trigger[-1] in allowed(matcher, size)
    assert matcher.advance(trigger[-1], needed - 1) == "veto"
    assert matcher.advance(trigger[-1], needed) == "ok"
    for left, token in reversed(list(enumerate(reversed(least.completion())))):
        assert matcher.advance(token, left) == "ok"


def test_text_that_a_model_writes_has_marks_and_no_special_tokens(model: Model) -> None:
    tokenizer = model.tokenizer
    marks = tokenizer.markers
    assert marks["<tool_call>"] in tokenizer.encode_written("a<tool_call>b")
    ids = tokenizer.encode_written("a<|im_end|>b")
    assert not set(ids) & tokenizer.special_ids
    assert tokenizer.decode(ids) == "a<|im_end|>b"


def test_bare_json_of_other_names_is_text(model: Model) -> None:
    def taken(text: str, mode: ToolUse) -> bool:
        matcher = model.compiler.compile(LLAMA3.constraint(TOOLS, mode)).matcher()
        for token in model.tokenizer.encode(text):
            if token not in allowed(matcher, model.tokenizer.vocab_size):
                return False
            assert matcher.advance(token, 10_000) == "ok"
        return model.tokenizer.eos_id in allowed(matcher, model.tokenizer.vocab_size)

    assert taken('{"name": "John"} and {"name": "get", "x": 1}', ToolUse("auto"))
    assert not taken('{"name": "get", "parameters": {"n": "x"}}', ToolUse("auto"))
    assert taken('{"name": "get", "parameters": {"n": 3}}', ToolUse("auto"))
    assert not taken('{"name": "get", "parameters": {"n": 3}}', ToolUse("none"))
    assert taken('{"name": "John", "parameters": {}}', ToolUse("none"))


@pytest.mark.parametrize("name", ["hermes", "mistral"])
@pytest.mark.parametrize("mode", [ToolUse("required"), ToolUse("auto")])
def test_calls_in_a_row_are_limited(name: str, mode: ToolUse, model: Model) -> None:
    """A model that goes on and on with the same call comes to an end."""
    layout, size = LAYOUTS[name], model.tokenizer.vocab_size
    compiled = model.compiler.compile(layout.constraint([Tool("now")], mode))
    for count in (MAX_CALLS, MAX_CALLS + 1):
        matcher = compiled.matcher()
        ids = model.tokenizer.encode(layout.run([("now", "{}")] * count))
        refused = 0
        for token in ids:
            if token not in allowed(matcher, size):
                refused += 1
                break
            assert matcher.advance(token, 10_000) == "ok"
            assert matcher.completion()
        if mode.mode == "required" or name == "mistral":
            assert refused == (count > MAX_CALLS)
        if not refused:
            assert model.tokenizer.eos_id in allowed(matcher, size)
