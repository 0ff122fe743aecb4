"""What ``gen`` takes arrives, and what it must not take is refused where it is written."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

import sapwood as sw
from sapwood.frontend_lang.building import SamplingOptions
from sapwood.frontend_lang.operations import Unreadable
from sapwood.frontend_lang.options import RunOptions
from sapwood.frontend_lang.run import DETAILS
from sapwood.frontend_lang.runtime import Answer, Request, Sampling
from sapwood.frontend_lang.scripted import ScriptError

UNUSUAL: dict[str, Any] = {
    "max_tokens": 77,
    "min_tokens": 3,
    "n": 2,
    "stop": ("a", "b"),
    "stop_token_ids": (5,),
    "stop_regex": ("x+",),
    "temperature": 0.25,
    "top_p": 0.5,
    "top_k": 9,
    "min_p": 0.125,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "repetition_penalty": 1.5,
    "logit_bias": {1: 2.0},
    "seed": 11,
    "ignore_eos": True,
    "return_logprob": True,
    "logprob_start_len": 4,
    "top_logprobs_num": 2,
    "return_text_in_logprobs": True,
    "regex": "[x]",
    "json_schema": '{"type": "null"}',
    "ebnf": 'root ::= "x"',
    "grammar": {"syntax": "lark", "definition": 'start: "x"'},
    "structural_tag": {"triggers": []},
    "lenient": True,
    "whitespace": 2,
    "on_budget": "cut",
    "skip_special_tokens": False,
    "no_stop_trim": True,
    "tools": [{"type": "function"}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "cache_salt": "s",
    "priority": 3,
}
ANSWERS = {"json_schema": "null"}
ARE_EXPRESSIONS = {"name", "dtype", "choices", "choices_method", "more"}


def sent(expression: Any, **options: Any) -> Sampling:
    @sw.function
    def program(s: sw.State) -> None:
        s += expression

    answer = "null" if "json" in str(expression.given) else "1" if expression.parse else "x"
    runtime = sw.Scripted(lambda request: answer)
    program.run(backend=runtime, **options)
    (request,) = runtime.requests
    assert isinstance(request, Request)
    return request.sampling


def test_c087_every_parameter_is_tested() -> None:
    """C087: the table above has all that ``gen`` and ``run`` take."""
    fields = {field.name for field in dataclasses.fields(Sampling)}
    assert set(UNUSUAL) == fields
    taken = set(inspect.signature(sw.gen).parameters) | SamplingOptions.__annotations__.keys()
    assert taken - ARE_EXPRESSIONS == fields
    of_runs = RunOptions.__annotations__.keys() - {"stream", "backend", "timeout", "use_thread"}
    assert {name.replace("max_new_", "max_") for name in of_runs} <= fields


@pytest.mark.parametrize("name", UNUSUAL)
def test_c087_every_parameter_arrives(name: str) -> None:
    """C087: set in ``gen``, and for all of a run."""
    value = UNUSUAL[name]
    assert value != getattr(Sampling(), name)
    beside: dict[str, Any] = {"return_logprob": True} if name in DETAILS else {}
    sampling = sent(sw.gen("x", **beside, **{name: value}))
    assert sampling.changed() == {name: value, **beside}
    of_run = "max_new_tokens" if name == "max_tokens" else name
    if of_run in RunOptions.__annotations__:
        assert sent(sw.gen("x"), **beside, **{of_run: value}).changed() == {name: value, **beside}
        other = getattr(Sampling(), name)
        if other is not None:
            own = sw.gen("x", **{name: other})
            assert sent(own, **beside, **{of_run: value}).changed() == beside


@pytest.mark.parametrize("name", sorted(DETAILS))
def test_c087_details_of_log_probabilities_alone_are_refused(name: str) -> None:
    """C087: no runtime would take notice of them."""
    with pytest.raises(ValueError, match=f"{name} goes with return_logprob"):
        sent(sw.gen("x", **{name: UNUSUAL[name]}))


SGLANGS = (
    "name", "max_tokens", "min_tokens", "n", "stop", "stop_token_ids", "stop_regex", "temperature",
    "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "ignore_eos",
    "return_logprob", "logprob_start_len", "top_logprobs_num", "return_text_in_logprobs",
)  # fmt: skip


def test_parameters_are_in_sglangs_order() -> None:
    def order(of: Any) -> tuple[str, ...]:
        return tuple(inspect.signature(of).parameters)

    constraints = ("dtype", "choices", "choices_method", "regex", "json_schema", "more")
    assert order(sw.gen) == SGLANGS + constraints
    for kind in (sw.gen_int, sw.gen_string, sw.gen_float):
        assert order(kind) == (*(n for n in SGLANGS if n != "min_tokens"), "more")
    assert order(sw.select)[:4] == ("name", "choices", "temperature", "choices_method")
    batch = ("self", "batch_kwargs", "num_threads", "progress_bar", "generator_style")
    assert order(sw.Program.run_batch)[:5] == batch
    endpoint = ("base_url", "api_key", "verify", "chat_template_name")
    assert order(sw.RuntimeEndpoint)[:4] == endpoint
    assert order(sw.OpenAI)[:4] == ("model_name", "is_chat_model", "chat_template", "is_azure")
    assert order(sw.State.fork) == ("self", "size", "position_ids_offset")
    assert order(sw.State.text_async_iter) == ("self", "var_name", "return_meta_data")


def test_kinds_take_their_parameters_by_place_and_by_name() -> None:
    by_place = sent(sw.gen_int("x", 5, 1, ("a",), (7,), ("b",), 0.5, 0.25, 9, 0.125, 1.0, -1.0))
    assert (by_place.max_tokens, by_place.stop[0], by_place.stop_token_ids) == (5, "a", (7,))
    assert (by_place.temperature, by_place.top_p, by_place.top_k, by_place.min_p) == (
        0.5, 0.25, 9, 0.125,
    )  # fmt: skip
    assert (by_place.frequency_penalty, by_place.presence_penalty) == (1.0, -1.0)
    assert sent(sw.gen_float("x", seed=3)).seed == 3


def test_c087_defaults_are_sglangs() -> None:
    assert sent(sw.gen("x")) == Sampling(max_tokens=128, temperature=1.0, top_p=1.0, top_k=-1)


@pytest.mark.parametrize("stream", [False, True])
def test_c087_several_samples(stream: bool) -> None:
    """C087: a list of texts; the program goes on with the first."""

    @sw.function
    def program(s: sw.State) -> None:
        s += "a" + sw.gen("x", n=3) + "b" + sw.gen("y")

    script = {"x": ["1", "2", "3"], "y": ["4"]}
    state = program.run(backend=sw.Scripted(script), stream=stream)
    assert (state["x"], state["y"], state.text()) == (["1", "2", "3"], "4", "a1b4")
    assert [m["completion_tokens"] for m in state.get_meta_info("x")] == [1, 1, 1]
    assert list(state.text_iter("x")) == ["1"]
    both = program.run_batch([{}, {}], backend=sw.Scripted(lambda request: request.name))
    assert [s["x"] for s in both] == [["x", "x", "x"]] * 2


def test_c087_unknown_parameters_and_two_constraints_are_refused() -> None:
    with pytest.raises(TypeError, match="unknown parameter 'temprature'"):
        sw.gen("x", temprature=0)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="both dtype and regex"):
        sw.gen("x", dtype=int, regex="x")
    with pytest.raises(ValueError, match="both json_schema and ebnf"):
        sw.gen("x", json_schema={}, ebnf="x")
    with pytest.raises(ValueError, match="dtype is complex"):
        sw.gen("x", dtype=complex)
    with pytest.raises(ValueError, match="top_p has no meaning for"):
        sw.gen("x", choices=["a"], top_p=0.5)
    with pytest.raises(ValueError, match="no choices"):
        sw.gen("x", choices_method=sw.greedy_token_selection)
    with pytest.raises(TypeError, match="neither a schema nor a type"):
        sw.gen("x", json_schema=5)


@dataclass
class Data:
    name: str
    size: int | None


class Struct(msgspec.Struct):
    name: str
    size: int | None


class Model(pydantic.BaseModel):
    name: str
    size: int | None


@pydantic.dataclasses.dataclass
class Checked:
    name: str
    size: int | None


@pytest.mark.parametrize("kind", [Data, Struct, Model, Checked, list[Data], dict[str, Data]])
def test_answers_are_read_as_the_type_that_was_asked_for(kind: Any) -> None:
    text = {list[Data]: '[{"name": "a", "size": 1}]'}.get(kind, '{"name": "a", "size": null}')
    text = '{"k": {"name": "a", "size": 1}}' if kind == dict[str, Data] else text

    @sw.function
    def program(s: sw.State) -> Any:
        s += "x" + sw.gen("x", json_schema=kind)
        return s["x"]

    runtime = sw.Scripted([text, text])
    state = program.run(backend=runtime)
    value: Any = state.ret_value
    if isinstance(kind, type):
        assert type(value) is kind
        assert state.ret_value.name == "a"
    else:
        assert value in ([Data("a", 1)], {"k": Data("a", 1)})
    assert state.raw("x") == text
    assert state.parsed("x") == value
    request = runtime.requests[0]
    assert isinstance(request, Request)
    assert '"additionalProperties": ' in (request.sampling.json_schema or "")


def test_a_schema_alone_leaves_text_and_can_be_read_parsed() -> None:
    schema = {"type": "object", "properties": {"default": {"type": "integer"}}}

    @sw.function
    def program(s: sw.State) -> None:
        s += sw.gen("x", json_schema=schema) + sw.gen("y", json_schema=json.dumps(schema))

    state = program.run(backend=sw.Scripted({"x": '{"default": 5}', "y": "{}"}))
    assert (state["x"], state.parsed("x"), state.parsed("y")) == (
        '{"default": 5}',
        {"default": 5},
        {},
    )
    assert state.parsed("x", dict[str, int]) == {"default": 5}


def test_an_answer_that_cannot_be_read_is_an_error_with_its_text() -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += sw.gen("x", json_schema=Data)

    with pytest.raises(Unreadable, match="cannot be read") as caught:
        program.run(backend=sw.Scripted(['{"name": 5}']))
    assert caught.value.text == '{"name": 5}'
    with pytest.raises(ScriptError, match="is no JSON"):
        program.run(backend=sw.Scripted(["{"]))


@pytest.mark.parametrize(
    ("make", "text", "value", "wrong"),
    [
        (sw.gen_int, "-12", -12, "x1"),
        (sw.gen_float, "1.5", 1.5, "1."),
        (sw.gen_string, '"a \\"b\\""', 'a "b"', "a"),
        (lambda name: sw.gen(name, dtype=bool), "False", False, "no"),
    ],
)
def test_kinds_by_patterns(make: Any, text: str, value: Any, wrong: str) -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += "x" + make("x")

    state = program.run(backend=sw.Scripted([text]))
    assert state["x"] == text
    assert state.parsed("x") == value
    assert type(state.parsed("x")) is type(value)
    with pytest.raises(ScriptError, match="does not match"):
        program.run(backend=sw.Scripted([wrong]))


@pytest.mark.parametrize(
    ("make", "said", "text"),
    [
        (sw.gen_int, "24 hours.", "24"),
        (sw.gen_int, "24.", "24"),
        (sw.gen_int, '24", "b"', "24"),
        (sw.gen_float, "1.5, or so", "1.5"),
        (sw.gen_float, "1\n", "1"),
    ],
)
def test_numbers_end_where_the_text_goes_on(make: Any, said: str, text: str) -> None:
    sampling = sent(make("x", stop="STOP", no_stop_trim=True))
    assert "STOP" in sampling.stop
    assert not sampling.no_stop_trim
    assert re.fullmatch(sampling.regex or "", said)
    assert re.fullmatch(sampling.regex or "", text)
    state = sw.function(lambda s: s.__iadd__("x" + make("x") + "!")).run(
        backend=sw.Scripted([said])
    )
    assert (state["x"], state.text()) == (text, f"x{text}!")


def test_calls_of_tools_and_their_results_become_messages() -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "add", "arguments": '{"a": 1}'},
    }
    tools = [{"type": "function", "function": {"name": "add"}}]

    @sw.function
    def program(s: sw.State) -> None:
        s += sw.user("1 + 1?")
        s += sw.assistant(sw.gen("calls", tools=tools))
        for one in s.get_meta_info("calls")["tool_calls"]:
            s += sw.tool(one["id"], "2")
        s += sw.assistant(sw.gen("answer", tools=tools))

    first = Answer(text="", meta={"tool_calls": [call]}, tool_calls=(call,))
    runtime = sw.Scripted([first, "It is 2."])
    state = program.run(backend=runtime)
    assert state.messages() == [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "It is 2."},
    ]
    last = runtime.requests[1]
    assert isinstance(last, Request)
    assert [m.as_dict() for m in last.prompt.messages] == state.messages()[:3]
