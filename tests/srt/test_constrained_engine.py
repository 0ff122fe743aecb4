"""Constraints on the real model, in this process."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from sapwood.srt.engine import Engine
from sapwood.srt.errors import RequestError
from sapwood.srt.params import SamplingParams

RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "role": {"enum": ["admin", "editor", "viewer"]},
        "tags": {
            "type": "array",
            "items": {"enum": ["new", "old", "hot"]},
            "uniqueItems": True,
            "maxItems": 3,
        },
    },
    "required": ["name", "age", "role", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def engine(default_model_path: Path) -> Iterator[Engine]:
    with Engine(str(default_model_path), kv_tokens=4096) as made:
        yield made


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_c017_every_answer_is_right_and_whole_within_any_budget(
    engine: Engine, temperature: float
) -> None:
    least = 40
    prompts = [chat(f"Describe customer {i} in JSON.") for i in range(16)]
    params = [
        SamplingParams(max_tokens=least + i, temperature=temperature, seed=i) for i in range(16)
    ]
    validator = jsonschema_rs.validator_for(RECORD)
    for done in engine.generate(prompts, params, json_schema=RECORD):
        assert validator.is_valid(json.loads(done.text)), done.text
        assert done.finish.reason == "stop"


def test_forced_tokens_save_passes_and_change_no_text(engine: Engine) -> None:
    params = SamplingParams(max_tokens=120, temperature=0.0)
    before = engine.stats
    short = engine.generate(chat("A customer record."), params, json_schema=RECORD)
    after = engine.stats
    steps, tokens = after.steps - before.steps, after.output_tokens - before.output_tokens
    assert tokens == len(short.ids)
    assert steps <= 0.6 * tokens
    drawn = SamplingParams(max_tokens=120, temperature=0.0, logprobs=0)
    long = engine.generate(chat("A customer record."), drawn, json_schema=RECORD)
    assert len(long.logprobs or []) == len(long.ids)
    assert json.loads(short.text) == json.loads(long.text)


def test_an_answer_is_the_same_alone_and_in_a_crowd(default_model_path: Path) -> None:
    with Engine(str(default_model_path), kv_tokens=4096, dtype="float32") as engine:
        _same_alone_and_in_a_crowd(engine)


def _same_alone_and_in_a_crowd(engine: Engine) -> None:
    params = [SamplingParams(max_tokens=90, temperature=1.0, seed=i) for i in range(6)]
    prompts = [chat(f"Customer {i}:") for i in range(6)]
    together = engine.generate(prompts, params, json_schema=RECORD)
    for prompt, each, done in zip(prompts, params, together, strict=True):
        assert engine.generate(prompt, each, json_schema=RECORD).ids == done.ids


def test_seeds_and_several_samples(engine: Engine) -> None:
    params = SamplingParams(max_tokens=90, temperature=1.0, seed=3, n=3)
    first = engine.generate(chat("A customer."), params, json_schema=RECORD)
    again = engine.generate(chat("A customer."), params, json_schema=RECORD)
    assert [each.text for each in first] == [each.text for each in again]
    assert len({each.text for each in first}) > 1


def test_a_stream_is_the_answer(engine: Engine) -> None:
    params = SamplingParams(max_tokens=90, temperature=0.0)
    whole = engine.generate(chat("A customer."), params, json_schema=RECORD)
    pieces = list(engine.stream(chat("A customer."), params, json_schema=RECORD))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [token for piece in pieces for token in piece.ids] == whole.ids


def test_regular_expressions_and_choices(engine: Engine) -> None:
    params = SamplingParams(max_tokens=24, temperature=1.0, seed=5)
    date = engine.generate("The date is ", params, regex=r"\d{4}-\d{2}-\d{2}")
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", date.text)
    assert engine.generate("Yes or no? ", params, choices=["yes", "no"]).text in ("yes", "no")


@pytest.mark.parametrize("seed", range(3))
def test_penalties_bias_and_stops_go_with_constraints(engine: Engine, seed: int) -> None:
    rng = random.Random(seed)
    params = SamplingParams(
        max_tokens=100,
        temperature=1.0,
        seed=seed,
        frequency_penalty=rng.uniform(-1, 1),
        repetition_penalty=1.2,
        top_p=0.9,
        top_k=40,
        min_tokens=3,
        logit_bias={rng.randrange(1000): 5.0},
    )
    done = engine.generate(chat("A customer."), params, json_schema=RECORD)
    assert jsonschema_rs.validator_for(RECORD).is_valid(json.loads(done.text))


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"json_schema": {"type": "foo"}}, "json_schema"),
        ({"json_schema": {"type": "object", "properties": {"a": {"$ref": "#/b"}}}}, None),
        ({"regex": "("}, "regex"),
        ({"regex": "a", "choices": ["b"]}, None),
        ({"json_schema": RECORD, "whitespace": 99}, "whitespace"),
    ],
)
def test_c001_what_cannot_be_held_is_refused(
    engine: Engine, options: dict[str, Any], param: str | None
) -> None:
    with pytest.raises(RequestError) as refused:
        engine.generate("x", SamplingParams(max_tokens=20), **options)
    assert refused.value.status == 400
    if param is not None:
        assert (refused.value.param or "").startswith(param)
    assert engine.generate("x", SamplingParams(max_tokens=2)).ids


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_has_not_are_refused(engine: Engine, number: float) -> None:
    with pytest.raises(RequestError, match="not JSON compliant"):
        engine.generate("A number: ", SamplingParams(max_tokens=8), json_schema={"const": number})


def test_a_chat_s_numbers_that_json_has_not_are_refused(engine: Engine) -> None:
    body = {"messages": chat("A number."), "temperature": float("nan"), "max_tokens": 4}
    with pytest.raises(RequestError, match="not JSON compliant"):
        asyncio.run(engine.achat(body))


def test_a_budget_that_is_too_small_is_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="the budget is 5") as refused:
        engine.generate("x", SamplingParams(max_tokens=5), json_schema=RECORD)
    assert refused.value.param == "max_tokens"
    cut = engine.generate("x", SamplingParams(max_tokens=5), json_schema=RECORD, on_budget="cut")
    assert len(cut.ids) == 5
    assert cut.finish.reason == "length"
