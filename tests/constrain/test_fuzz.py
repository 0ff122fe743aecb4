"""Random schemas, random tokens: whatever comes to an end is right."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sapwood.constrain.compile import ConstraintCompiler
from sapwood.constrain.matcher import Matcher
from sapwood.constrain.refusal import Refusal
from sapwood.constrain.spec import JsonSchema
from sapwood.srt.checkpoint import Checkpoint

from .strategies import recursive_schemas, schemas

MANY = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.fixture(scope="module")
def compiler(default_checkpoint: Checkpoint) -> ConstraintCompiler:
    tokenizer = default_checkpoint.tokenizer
    return ConstraintCompiler(
        default_checkpoint.vocabulary,
        lambda text: tokenizer.encode(text, add_bos=False, control=False),
    )


def written(matcher: Matcher, budget: int, words: int, eos: int, rng: random.Random) -> list[int]:
    """Tokens drawn at random, within a budget, as the server takes them."""
    row = np.zeros(words, np.int32)
    out: list[int] = []
    while not out or out[-1] != eos:
        remaining = budget - len(out) - 1
        assert remaining >= 0, "the budget is over and the output open"
        matcher.fill(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        assert len(allowed), "nothing may follow"
        verdict = "veto"
        for _ in range(8):
            token = int(rng.choice(allowed))
            verdict = matcher.advance(token, remaining)
            if verdict != "veto":
                break
        if verdict != "ok":
            token = matcher.completion()[0]
            assert matcher.advance(token, remaining) == "ok"
        out.append(token)
        for token in matcher.forced():
            if out[-1] == eos or matcher.advance(token, budget - len(out) - 1) != "ok":
                break
            out.append(token)
    return out


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), "a key comes twice"
    return found


@MANY
@given(schema=schemas | recursive_schemas(), seed=st.integers(0, 2**32), room=st.integers(0, 60))
def test_what_is_finished_is_right(
    compiler: ConstraintCompiler, default_checkpoint: Checkpoint, schema: Any, seed: int, room: int
) -> None:
    try:
        grammar = compiler.compile(JsonSchema(schema=json.dumps(schema)))
    except Refusal:
        return
    matcher = grammar.matcher()
    shortest = len(matcher.completion())
    assert shortest, "no completion is known"
    eos = min(default_checkpoint.vocabulary.eos_ids)
    words = (default_checkpoint.vocabulary.size + 31) // 32
    out = written(matcher, shortest + room, words, eos, random.Random(seed))
    assert len(out) <= shortest + room
    data = b"".join(default_checkpoint.vocabulary.token_bytes[token] or b"" for token in out[:-1])
    value = json.loads(data, object_pairs_hook=without_repeats)
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    assert validator.is_valid(value), (schema, data)
