"""Random loads on tiny pools: each sample ends once, as it would alone, and no page is lost."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.srt.messages import StepStats
from tests.fakes.stand import VOCAB, Result, Stand


def alone(
    prompt: list[int],
    page_size: int,
    seed: int,
    options: dict[str, Any],
    memory: int | None = None,
) -> Result:
    """The same sample with the whole of a large pool to itself, cold, and no drafts."""
    stand = Stand(pages=2048, page_size=page_size, memory=memory)
    return stand.generate("alone", prompt, seed=seed, **options)


class Load:
    """Random arrivals with shared prefixes, and aborts, on one stand."""

    def __init__(self, stand: Stand, page_size: int, seed: int, prompt: int, output: int) -> None:
        self.stand = stand
        self.page_size = page_size
        self.random = random.Random(seed)
        self.prompt = prompt
        self.output = output
        self.submitted: dict[str, tuple[list[int], int, int, dict[str, Any]]] = {}
        self.aborted: set[str] = set()
        self.headers = [self.tokens(prompt) for _ in range(4)]

    def tokens(self, most: int) -> list[int]:
        return [self.random.randrange(1, VOCAB) for _ in range(self.random.randint(1, most))]

    def arrive(self, number: int) -> None:
        draw = self.random
        header = draw.choice(self.headers)
        prompt = (header[: draw.randint(0, len(header))] + self.tokens(20))[: self.prompt]
        options: dict[str, Any] = {"max_tokens": draw.randint(0, self.output)}
        if draw.random() < 0.2:
            options["ignore_eos"] = True
        if draw.random() < 0.2:
            options["prompt_logprobs_from"] = draw.randint(0, len(prompt) + 1)
        if draw.random() < 0.2:
            options["stop"] = (chr(32 + draw.randrange(1, VOCAB)),)
        if draw.random() < 0.2:
            options["min_tokens"] = draw.randint(0, options["max_tokens"])
        rid, choices, seed = f"r{number}", draw.choice([1, 1, 1, 2]), draw.randrange(1000)
        self.submitted[rid] = (prompt, choices, seed, options)
        options["namespace"] = draw.choice([b"", b"", b"other"])
        options["priority"] = draw.choice([0, 0, 1])
        self.stand.submit(
            rid,
            prompt,
            choices=choices,
            seed=seed,
            **options,
        )

    def run(self, requests: int, abort_rate: float = 0.1) -> None:
        number = 0
        while number < requests or self.stand.core.busy:
            for _ in range(self.random.choice([0, 0, 1, 3])):
                if number < requests:
                    self.arrive(number)
                    number += 1
            if self.submitted and self.random.random() < abort_rate:
                rid = self.random.choice(list(self.submitted)[-10:])
                self.aborted.add(rid)
                self.stand.abort(rid)
            self.stand.step()
        self.stand.run()

    def check(self, share: float = 1.0) -> None:
        """Compares a share of the results with samples run alone."""
        for rid, (prompt, choices, seed, options) in self.submitted.items():
            for choice in range(choices):
                result = self.stand.results[rid, choice]
                assert result.refused is None
                if result.items:
                    assert 0 <= result.cached < len(prompt)
                assert result.finish is not None
                if result.finish.reason == "abort":
                    assert rid in self.aborted
                elif self.random.random() < share:
                    memory = self.stand.runner.memory
                    expected = alone(prompt, self.page_size, seed + choice, options, memory)
                    assert (result.ids, result.finish) == (expected.ids, expected.finish)
                    scores = result.items[0].prompt_logprobs
                    if "prompt_logprobs_from" in options and choice == 0 and scores:
                        start = options["prompt_logprobs_from"]
                        assert [each.id for each in scores] == prompt[start:]

    def check_empty(self) -> None:
        """After a flush every page is free."""
        cache = self.stand.cache
        assert self.stand.control("flush_cache").ok
        assert cache.n_free == cache.n_total


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    page_size=st.sampled_from([1, 4, 16]),
    budget=st.integers(4, 64),
    max_running=st.integers(1, 8),
    spare=st.integers(0, 60),
    reserve=st.sampled_from([0, 1, 8]),
    ageing=st.sampled_from([1, 4, 256]),
)
def test_any_load_ends_as_each_request_would_alone(
    seed: int,
    page_size: int,
    budget: int,
    max_running: int,
    spare: int,
    reserve: int,
    ageing: int,
) -> None:
    """C045: arrivals, aborts and push-backs at random; pages are audited after each step."""
    pages = -(-(40 + 20 + spare) // page_size)
    stand = Stand(
        pages=pages,
        page_size=page_size,
        max_running=max_running,
        max_batched_tokens=budget,
        reserve_tokens=reserve,
        ageing_steps=ageing,
    )
    load = Load(stand, page_size, seed, prompt=40, output=20)
    load.run(14)
    load.check(0.5)
    load.check_empty()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    page_size=st.sampled_from([1, 4, 16]),
    budget=st.integers(4, 64),
    max_running=st.integers(1, 8),
    spare=st.integers(0, 60),
    speculate=st.sampled_from(["ngram", "auto"]),
)
def test_any_load_ends_the_same_with_drafts(
    seed: int, page_size: int, budget: int, max_running: int, spare: int, speculate: str
) -> None:
    """Output that repeats itself now and then: drafts right and wrong, in pools that are full."""
    stand = Stand(
        pages=-(-(40 + 60 + spare) // page_size),
        page_size=page_size,
        max_running=max_running,
        max_batched_tokens=budget,
        reserve_tokens=1,
        memory=1,
        speculate=speculate,
    )
    load = Load(stand, page_size, seed, prompt=40, output=60)
    load.run(14)
    load.check()
    load.check_empty()


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_trace_with_forced_push_backs(page_size: int) -> None:
    """C045, the short form: a pool so small that rows are pushed back all the time."""
    run_trace(page_size, requests=80)


@pytest.mark.parametrize(("page_size", "budget"), [(1, 64), (4, 48), (16, 24)])
def test_long_trace_with_forced_push_backs(page_size: int, budget: int) -> None:
    """C045, in full."""
    run_trace(page_size, requests=2000, budget=budget)


@pytest.mark.parametrize("page_size", [1, 4])
def test_trace_with_drafts_and_push_backs(page_size: int) -> None:
    stats = run_trace(page_size, requests=80, memory=1, speculate="ngram")
    assert stats.accepted_tokens > 50
    assert stats.drafted_tokens - stats.accepted_tokens > 50


def run_trace(page_size: int, requests: int, budget: int = 64, **options: Any) -> StepStats:
    stand = Stand(
        pages=544 // page_size,
        page_size=page_size,
        max_running=16,
        max_batched_tokens=budget,
        reserve_tokens=2,
        **options,
    )
    load = Load(stand, page_size, seed=page_size, prompt=300, output=40)
    load.run(requests, abort_rate=0.1)
    load.check(40 / requests)
    assert stand.stats.pushed_back > requests / 40
    assert stand.stats.evicted_pages > 0
    load.check_empty()
    return stand.stats
