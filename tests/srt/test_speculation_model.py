"""Drafts with a model that computes: the tokens are those that come one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sapwood import Engine, SamplingParams

PROMPTS = [
    "The river rises in the hills and",
    "Once upon a time there was a",
    "one two three four one two three four one two three four one two",
    'rows = [{"name": "a", "size": 1}, {"name": "b", "size": 2}, {"name": "c", "size":',
    "Repeat after me: the cat sat on the mat. The cat sat on the mat. The cat sat on",
]


@pytest.fixture(scope="module")
def engines(default_model_path: Path) -> Iterator[tuple[Engine, Engine]]:
    options = {"dtype": "float32", "kv_tokens": 6000}
    with (
        Engine(str(default_model_path), **options) as plain,
        Engine(str(default_model_path), speculate="ngram", **options) as fast,
    ):
        yield plain, fast


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "frequency_penalty": 0.2, "presence_penalty": 0.1},
        {"temperature": 0.0, "repetition_penalty": 1.05, "min_tokens": 30},
        {"temperature": 0.7, "seed": 3},
        {"temperature": 0.5, "seed": 4, "top_p": 0.9, "logit_bias": {253: 2.0}, "min_tokens": 20},
        {"temperature": 0.3, "seed": 5, "top_k": 8, "n": 2, "stop": ("three\n",)},
    ],
    ids=lambda params: "-".join(params),
)
def test_tokens_and_logprobs_are_those_without_drafts(
    engines: tuple[Engine, Engine], params: dict[str, object]
) -> None:
    asked = SamplingParams(max_tokens=48, logprobs=2, **params)  # type: ignore[arg-type]
    before = engines[1].stats
    want, got = (engine.generate(PROMPTS, asked) for engine in engines)
    for ours, theirs in zip(got, want, strict=True):
        samples = zip(
            *(each if isinstance(each, list) else [each] for each in (ours, theirs)), strict=True
        )
        for one, other in samples:
            assert (one.ids, one.text, one.finish) == (other.ids, other.text, other.finish)
            assert [entry.id for entry in one.logprobs] == one.ids
            values = [entry.logprob for entry in other.logprobs]
            assert [entry.logprob for entry in one.logprobs] == pytest.approx(values, abs=1e-3)
    stats = engines[1].stats
    assert stats.drafted_tokens > before.drafted_tokens
    assert stats.accepted_tokens > before.accepted_tokens
    assert stats.pages_used == 0
