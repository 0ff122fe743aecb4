"""Sampling: the fast path against the plain one, distributions, edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.srt.params import SamplingParams
from sapwood.srt.sampling import Draw, Sampler, top_logprobs, uniform
from sapwood.srt.sampling.reference import adjusted, draw, legal, survivors

VOCAB = 300


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler(VOCAB)


def drawing(params: SamplingParams, **rest: Any) -> Draw:
    defaults: dict[str, Any] = {
        "seed": 7,
        "choice": 0,
        "position": 0,
        "tokens": np.array([1, 2, 2], np.int32),
        "prompt_len": 1,
    }
    return Draw(params=params, **{**defaults, **rest})


def mask_of(allowed: np.ndarray) -> np.ndarray:
    bits = np.zeros(-(-len(allowed) // 32) * 32, np.uint8)
    bits[: len(allowed)] = allowed
    return np.packbits(bits, bitorder="little").view(np.int32)


def sample_one(sampler: Sampler, logits: np.ndarray, one: Draw) -> int:
    ids, errors = sampler.sample(torch.from_numpy(logits)[None], [one])
    assert errors == [None]
    return ids[0]


params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-6, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 50, 299, 300, 4000]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.01, 1e-9]),
    min_p=st.sampled_from([0.0, 0.05, 0.9, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.3, 2.0]),
    presence_penalty=st.sampled_from([0.0, -2.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 2.0, -0.3]),
    logit_bias=st.sampled_from([{}, {3: 5.0}, {0: -100.0, 299: 100.0}]),
)


@settings(max_examples=400, deadline=None)
@given(params=params, seed=st.integers(0, 2**64 - 1), noise=st.integers(0, 2**32 - 1))
def test_the_fast_path_draws_what_the_plain_one_draws(
    sampler: Sampler, params: SamplingParams, seed: int, noise: int
) -> None:
    source = np.random.default_rng(noise)
    logits = (source.normal(size=VOCAB) * source.choice([0.1, 1, 6])).astype(np.float32)
    if source.random() < 0.4:
        logits = np.round(logits)  # ties
    tokens = source.integers(0, VOCAB, 20).astype(np.int32)
    allowed = np.ones(VOCAB, bool)
    if source.random() < 0.5:
        allowed = source.random(VOCAB) < 0.2
        allowed[source.integers(VOCAB)] = True
    one = drawing(params, seed=seed, position=9, tokens=tokens, prompt_len=8, mask=mask_of(allowed))
    got = sample_one(sampler, logits.copy(), one)

    x = legal(adjusted(logits, params, tokens, 8), logits, allowed)
    if params.temperature == 0:
        assert got == int(x.argmax())
        return
    scaled = torch.from_numpy((x - x.max()) / np.float32(params.temperature))
    p = torch.softmax(scaled, -1).numpy()
    keep = survivors(p, params.top_k, params.top_p, params.min_p)
    assert keep[got]
    assert got == draw(p, keep, uniform(seed, 0, 9))


def test_uniform_numbers_are_uniform_and_repeatable() -> None:
    numbers = np.array([uniform(seed, 0, position) for seed in range(60) for position in range(60)])
    assert uniform(3, 1, 4, 1) == uniform(3, 1, 4, 1)
    assert len(set(numbers)) == len(numbers)
    counts = np.histogram(numbers, 20, (0, 1))[0]
    assert ((counts - 180) ** 2 / 180).sum() < 45  # chi-square, 19 degrees: p = 0.0007
    for other in (uniform(3, 1, 4), uniform(4, 1, 4, 1), uniform(3, 2, 4, 1), uniform(3, 1, 5, 1)):
        assert other != uniform(3, 1, 4, 1)


def test_draws_follow_the_distribution(sampler: Sampler) -> None:
    logits = np.full(VOCAB, -np.inf, np.float32)
    logits[[5, 100, 299]] = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    rows = torch.from_numpy(np.tile(logits, (3000, 1)))
    ids, _ = sampler.sample(
        rows, [drawing(SamplingParams(), seed=11, position=i) for i in range(3000)]
    )
    counts = np.array([ids.count(token) for token in (5, 100, 299)])
    assert counts.sum() == 3000
    assert ((counts - [1500, 900, 600]) ** 2 / [1500, 900, 600]).sum() < 14  # p = 0.001


def test_the_seed_alone_decides_whatever_else_is_in_the_batch(sampler: Sampler) -> None:
    source = np.random.default_rng(1)
    logits = torch.from_numpy(source.normal(size=(8, VOCAB)).astype(np.float32))
    draws = [drawing(SamplingParams(top_p=0.9), seed=i, position=i) for i in range(8)]
    together, _ = sampler.sample(logits, draws)
    alone = [sampler.sample(logits[i : i + 1], [draws[i]])[0][0] for i in range(8)]
    assert together == alone


def test_c062_a_bias_on_one_row_leaves_its_neighbour_alone(sampler: Sampler) -> None:
    """C062"""
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    plain = drawing(SamplingParams(temperature=0.0))
    biased = drawing(SamplingParams(temperature=0.0, logit_bias={17: 100.0}))
    ids, _ = sampler.sample(logits, [plain, biased])
    assert ids == [int(logits[0].argmax()), 17]
    assert torch.equal(logits, before)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_c096_a_row_with_a_bad_logit_fails_alone(sampler: Sampler, bad: float) -> None:
    """C096"""
    logits = torch.zeros(3, VOCAB)
    logits[0, 5] = logits[2, 6] = 1.0
    logits[1, 9] = bad
    draws = [drawing(SamplingParams(temperature=t)) for t in (0.0, 1.0, 0.0)]
    ids, errors = sampler.sample(logits, draws)
    assert (ids[0], ids[2]) == (5, 6)
    assert errors[0] is None
    assert errors[2] is None
    assert errors[1] is not None
    assert "logit" in errors[1]


def test_a_row_of_minus_infinities_fails(sampler: Sampler) -> None:
    _, errors = sampler.sample(torch.full((1, VOCAB), -torch.inf), [drawing(SamplingParams())])
    assert errors[0] is not None


def test_the_grammar_wins_over_bias_and_penalties(sampler: Sampler) -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[4] = 3.0
    logits[[8, 9]] = [-np.inf, -5.0]
    allowed = np.zeros(VOCAB, bool)
    allowed[8] = True
    only = drawing(SamplingParams(logit_bias={4: 100.0}), mask=mask_of(allowed))
    allowed[9] = True
    either = drawing(SamplingParams(logit_bias={4: 100.0}), mask=mask_of(allowed))
    assert sample_one(sampler, logits, either) == 9
    _, errors = sampler.sample(torch.from_numpy(logits)[None], [only])
    assert errors[0] is not None  # the model itself rules out all that is legal
    banned = drawing(SamplingParams(logit_bias={9: -100.0}), mask=mask_of(allowed))
    assert sample_one(sampler, logits, banned) == 9


def test_ends_are_not_drawn_before_min_tokens_unless_nothing_else_is_legal(
    sampler: Sampler,
) -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[2], logits[7] = 9.0, 5.0
    greedy = SamplingParams(temperature=0.0)
    assert sample_one(sampler, logits, drawing(greedy, banned=(2,))) == 7
    allowed = np.zeros(VOCAB, bool)
    allowed[2] = True
    assert sample_one(sampler, logits, drawing(greedy, banned=(2,), mask=mask_of(allowed))) == 2


def test_rows_that_pad_the_embedding_are_never_drawn(sampler: Sampler) -> None:
    logits = torch.zeros(1, VOCAB + 20)
    logits[0, VOCAB + 3] = 50.0
    for temperature in (0.0, 1.0):
        ids, _ = sampler.sample(logits, [drawing(SamplingParams(temperature=temperature))])
        assert ids[0] < VOCAB


@pytest.mark.parametrize("temperature", [1e-320, 1e-40, 1e-6])
def test_tiny_temperatures_are_greedy(sampler: Sampler, temperature: float) -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[40] = 1.0
    assert sample_one(sampler, logits, drawing(SamplingParams(temperature=temperature))) == 40


def test_greedy_ties_go_to_the_lowest_id(sampler: Sampler) -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[40, 90]] = 1.0
    assert sample_one(sampler, logits, drawing(SamplingParams(temperature=0.0))) == 40
    assert sample_one(sampler, logits, drawing(SamplingParams(top_k=1))) == 40


def test_penalties_are_those_of_their_definitions() -> None:
    logits = np.array([1.0, 2.0, -2.0, 4.0], np.float32)
    tokens = np.array([0, 2, 3, 3], np.int32)
    params = SamplingParams(
        repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25, logit_bias={1: 1.0}
    )
    got = adjusted(logits, params, tokens, prompt_len=1)
    assert got.tolist() == [0.5, 3.0, -4.0 - 0.75, 2.0 - 0.5 - 0.5]


def test_logprobs_are_those_of_the_model(sampler: Sampler) -> None:
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(2))
    logits[1, [3, 30]] = 8.0
    want = torch.log_softmax(logits.double(), -1)
    tokens = [5, 30, 7, int(logits[3].argmax())]
    for row, entry in enumerate(top_logprobs(logits, tokens, 5)):
        assert entry.id == tokens[row]
        assert entry.logprob == pytest.approx(float(want[row, tokens[row]]), abs=1e-9)
        best = want[row].topk(5)
        assert [value for _, value in entry.top] == pytest.approx(best.values.tolist())
        assert len({token for token, _ in entry.top}) == 5
    assert [token for token, _ in top_logprobs(logits, tokens, 2)[1].top] == [3, 30]
    last = top_logprobs(logits, tokens, 5)[3]
    assert last.top[0] == (tokens[3], last.logprob)
