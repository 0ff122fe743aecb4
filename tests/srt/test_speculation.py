"""Drafts from a request's own tokens: what they never change, and when they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.srt.config import SchedulerConfig
from sapwood.srt.messages import Finish, Submit
from sapwood.srt.params import SamplingParams
from sapwood.srt.scheduler.drafts import Drafts
from sapwood.srt.scheduler.guesser import LEAST, REST, Guesser
from sapwood.srt.scheduler.ngram_index import SIZES, NgramIndex
from sapwood.srt.scheduler.step_costs import FORGOTTEN, TRUSTED, StepCosts
from sapwood.srt.scheduler.task import Task
from tests.fakes.slots import SlotConstraints, slots
from tests.fakes.stand import EOS, Result, Stand

ROUND = [11, 12, 13, 14, 15, 16]
"""What a script repeats: after the first time it can be looked up."""

LONG = ROUND * 10


def both(script: list[int], **options: Any) -> tuple[Result, Result, Stand]:
    """A scripted request without drafts and with them, and the stand of the latter."""
    limits = {k: options.pop(k) for k in ("context", "pages", "page_size") if k in options}
    plain = Stand(script={"r": script}, **limits).generate("r", [1, 2], **options)
    stand = Stand(script={"r": script}, speculate="ngram", **limits)
    return plain, stand.generate("r", [1, 2], **options), stand


def said(result: Result) -> tuple[Any, ...]:
    logprobs = [entry for item in result.items for entry in item.logprobs or []]
    return result.ids, result.finish, result.cached, logprobs


def test_a_repetition_takes_a_step_for_several_tokens() -> None:
    plain, fast, stand = both(LONG, max_tokens=60)
    assert said(fast) == said(plain)
    assert len(stand.runner.steps) < 25
    stats = stand.stats
    assert len(stand.runner.steps) + stats.accepted_tokens == stats.output_tokens == 60
    assert stats.accepted_tokens <= stats.drafted_tokens


@pytest.mark.parametrize("max_tokens", range(1, 30))
def test_budgets_are_exact(max_tokens: int) -> None:
    plain, fast, stand = both(LONG, max_tokens=max_tokens)
    assert said(fast) == said(plain)
    assert len(fast.ids) == max_tokens
    # No token is guessed that there is no room for.
    assert all(row.stop < 2 + max_tokens for batch in stand.runner.steps for row in batch.rows)


@pytest.mark.parametrize("context", range(14, 24))
def test_the_end_of_the_context_is_exact(context: int) -> None:
    plain, fast, _ = both(LONG, max_tokens=None, context=context, pages=64)
    assert said(fast) == said(plain)
    assert len(fast.ids) == context - 2


@pytest.mark.parametrize("end", range(6, 24))
def test_a_stop_token_in_a_draft_ends_where_it_would(end: int) -> None:
    """Both what ends a request and what it ignores may come in what is looked up."""
    script = [*LONG[:end], EOS, *LONG[end:]]
    for options in ({}, {"ignore_eos": True}, {"min_tokens": end + 3}):
        plain, fast, _ = both([*script, *script], max_tokens=50, **options)
        assert said(fast) == said(plain)
    plain, fast, stand = both(LONG, max_tokens=50, stop_token_ids=(16,), min_tokens=end)
    assert said(fast) == said(plain)
    assert fast.finish == Finish("stop", 16)
    guessed = [
        row.request.upto(row.stop)[row.sample_from + 1 :]
        for batch in stand.runner.steps
        for row in batch.rows
    ]
    assert all(16 not in draft for draft in guessed)  # nothing would come after it


@pytest.mark.parametrize("min_tokens", [0, 8, 20, 33])
def test_a_stop_string_over_drafted_tokens_ends_where_it_would(min_tokens: int) -> None:
    stop = "".join(chr(32 + token) for token in (13, 14, 15))
    options = {"stop": (stop,), "min_tokens": min_tokens, "max_tokens": 50}
    plain, fast, stand = both(LONG, **options)
    assert said(fast) == said(plain)
    assert fast.finish == Finish("stop", stop)
    # What was computed past the stop is not kept.
    assert stand.cache.n_evictable == 2 + len(fast.ids) - 1
    assert stand.stats.output_tokens == len(fast.ids)


@pytest.mark.parametrize("page_size", [1, 4])
def test_logprobs_go_with_their_tokens(page_size: int) -> None:
    script = [*LONG[:20], 40, *LONG[:20], 41]
    plain, fast, _ = both(script, max_tokens=44, logprobs=0, page_size=page_size)
    assert said(fast) == said(plain)
    assert [entry.id for item in fast.items for entry in item.logprobs or []] == fast.ids


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_samples_that_repeat_themselves_now_and_then(page_size: int, seed: int) -> None:
    """Drafts that are right, wrong from some place on, or wrong at once; several choices."""
    options: dict[str, Any] = {"choices": 3, "seed": seed, "max_tokens": 80, "logprobs": 0}
    results, stands = [], []
    for speculate in ("off", "ngram"):
        stand = Stand(memory=1, page_size=page_size, speculate=speculate)
        stand.submit("r", [5, 6, 7, 8], **options, ignore_eos=True)
        stand.run()
        results.append([said(stand.results["r", i]) for i in range(3)])
        stands.append(stand)
    assert results[0] == results[1]
    assert 0 < stands[1].stats.accepted_tokens < stands[1].stats.drafted_tokens
    assert stands[0].stats.drafted_tokens == 0


@pytest.mark.parametrize("page_size", [1, 4])
def test_nothing_of_a_wrong_draft_is_found_later(page_size: int) -> None:
    """Only the answer is in the tree, whole pages of it, and a next turn finds all of that."""
    stand = Stand(memory=1, page_size=page_size, speculate="ngram")
    first = stand.generate("r", [5, 6, 7, 8], max_tokens=70, ignore_eos=True)
    assert stand.stats.accepted_tokens < stand.stats.drafted_tokens
    known = (4 + 70 - 1) // page_size
    assert (stand.cache.n_evictable, stand.cache.n_used) == (known, 0)
    turn = [5, 6, 7, 8, *first.ids, 9, 9]
    second = stand.generate("s", turn, max_tokens=5, ignore_eos=True)
    assert second.cached == known * page_size
    cold = Stand(memory=1, page_size=page_size).generate("s", turn, max_tokens=5, ignore_eos=True)
    assert second.ids == cold.ids


def test_pages_of_wrong_drafts_are_given_back_at_once() -> None:
    stand = Stand(memory=1, speculate="ngram")
    stand.submit("r", [5, 6, 7, 8], max_tokens=70, ignore_eos=True)
    while stand.core.busy:
        stand.step()
        if stand.stats.running:
            length = 4 + len(stand.results["r", 0].ids)
            assert stand.stats.pages_used == length - 1
    assert stand.stats.accepted_tokens < stand.stats.drafted_tokens


def test_drafts_push_nobody_back() -> None:
    """Two rows that fit as long as neither guesses more than there is room for."""
    stand = Stand(
        pages=64, reserve_tokens=30, speculate="ngram", script={"a": LONG, "b": LONG[::-1]}
    )
    for rid in "ab":
        stand.submit(rid, [1, 2], max_tokens=30)
    stand.run()
    assert [len(stand.results[rid, 0].ids) for rid in "ab"] == [30, 30]
    assert stand.stats.accepted_tokens
    assert stand.stats.pushed_back == 0


def test_an_abort_with_a_draft_in_flight_frees_its_pages() -> None:
    stand = Stand(script={"r": LONG}, speculate="ngram")
    stand.submit("r", [1, 2], max_tokens=60)
    for _ in range(12):
        stand.step()
    batch = stand.scheduler.next_batch()
    assert batch is not None
    assert batch.rows[0].drafted
    stand.scheduler.abort("r")
    stand.scheduler.commit(batch, stand.runner.sample(batch, None))
    stand.scheduler.audit()
    assert stand.cache.n_used == 0


@pytest.mark.parametrize("place", range(8, 30))
def test_a_row_fails_where_it_would_without_drafts(place: int) -> None:
    """What was drawn before the logits without numbers is told; the failure comes with its turn."""
    found = []
    for speculate in ("off", "ngram"):
        stand = Stand(script={"r": LONG}, fails={"r": place}, speculate=speculate)
        found.append(said(stand.generate("r", [1, 2], max_tokens=60)))
    assert found[0] == found[1]
    assert found[0][1].reason == "error"
    assert len(found[0][0]) == place


def test_what_an_earlier_epoch_said_is_looked_up_too() -> None:
    stand = Stand(script={"r": LONG}, speculate="ngram")
    options: dict[str, Any] = {"output_ids": LONG[:12], "max_tokens": 40}
    result = stand.generate("r", [1, 2], **options)
    plain = Stand(script={"r": LONG}).generate("r", [1, 2], **options)
    assert result.ids == plain.ids == LONG[12:40]
    assert stand.runner.steps[1].rows[0].drafted


def test_rows_under_a_constraint_make_no_drafts() -> None:
    stand = Stand(constraints=SlotConstraints(), speculate="ngram")
    free = "3 4"
    result = stand.generate("a", [3, 4, 3, 4, 3, 4], constraint=slots(*[free] * 12))
    assert len(result.ids) == 13
    assert stand.stats.drafted_tokens == 0


def test_drafts_take_what_a_step_has_left() -> None:
    """Prompts come first: a step is full of them before anything is guessed."""
    stand = Stand(script={"r": LONG}, speculate="ngram", max_batched_tokens=16)
    stand.submit("r", [1, 2], max_tokens=60)
    for _ in range(12):
        stand.step()
    assert stand.runner.steps[-1].rows[0].drafted
    stand.submit("long", list(range(1, 60)), max_tokens=2)
    stand.step()
    batch = stand.runner.steps[-1]
    assert [row.drafted for row in batch.rows] == [0, 0]
    assert batch.n_tokens == 16
    stand.run()


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 8), st.integers(1, 20))
def test_the_index_finds_the_latest_place(ids: list[int], most: int, chunk: int) -> None:
    tokens = np.array(ids, np.int32)
    index = NgramIndex()
    for stop in [*range(0, len(ids), chunk), len(ids)]:
        index.add(tokens[:stop])
    want: list[int] = []
    for size in SIZES:
        places = [at for at in range(size, len(ids)) if ids[at - size : at] == ids[-size:]]
        if places:
            period = ids[places[-1] :]
            want = (period * most)[:most]
            break
    assert index.draft(tokens, most).tolist() == want


def test_large_ids_are_told_apart() -> None:
    top = 2**21 - 1
    tokens = np.array([0, top, top, 7, 1, 0, top, 8, 0, top, top], np.int32)
    index = NgramIndex()
    index.add(tokens)
    assert index.draft(tokens, 1).tolist() == [7]


def test_a_request_that_guesses_badly_stops_and_tries_again_now_and_then() -> None:
    guesser = Guesser()
    assert len(guesser.chances(8)) > 1
    while guesser.chance >= LEAST:
        guesser.learn(1, 0)
    trials = [guesser.chances(8) for _ in range(REST)]
    assert trials == [[]] * (REST - 1) + [[1.0]]
    for _ in range(30):
        guesser.learn(8, 8)
    assert len(guesser.chances(8)) == 8


def test_costs_are_medians_in_between_and_are_forgotten() -> None:
    costs = StepCosts()
    sizes = np.array([1, 4, 64])
    assert costs.of(sizes).tolist() == [1.0, 1.0, 1.0]  # nothing is known: nothing costs more
    for seconds in (1.0, 9.0, 1.0):
        costs.add(1, seconds)
    assert costs.of(sizes).tolist() == [1.0, 1.0, 1.0]
    for _ in range(TRUSTED):
        costs.add(7, 3.0)
    assert costs.of(sizes).tolist() == [1.0, 2.0, 3.0]
    for _ in range(FORGOTTEN):
        costs.add(1, 1.0)
    assert costs.of(sizes).tolist() == [1.0, 1.0, 1.0]


def looping_task() -> Task:
    ids = [1, 2, 3, 4] * 4
    submit = Submit(rid="r", choice=0, prompt_ids=ids, params=SamplingParams(), seed=0)
    task = Task(submit, 1000, 0, 0)
    task.request.computed = len(ids) - 1
    return task


@pytest.mark.parametrize(
    ("rows", "fixed", "drafted"), [(1, 5.0, True), (1, 0.0, False), (32, 5.0, False)]
)
def test_auto_guesses_where_a_token_costs_less_than_it_brings(
    rows: int, fixed: float, drafted: bool
) -> None:
    """A step costs ``fixed`` and 1 for each token: shared by one row, or by many."""
    drafts = Drafts(SchedulerConfig(speculate="auto"))
    for n_tokens in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        for _ in range(TRUSTED):
            drafts.costs.add(n_tokens, fixed + n_tokens)
    tasks = [looping_task() for _ in range(rows)]
    assert bool(drafts.choose(tasks, 500)) is drafted
    assert Drafts(SchedulerConfig(speculate="ngram")).choose(tasks, 500)


class CostClock:
    """Says how long all steps so far would have taken."""

    def __init__(self, fixed: float) -> None:
        self.fixed = fixed
        self.stand: Stand | None = None

    def __call__(self) -> float:
        steps = self.stand.runner.steps if self.stand is not None else []
        return sum(self.fixed + step.n_tokens for step in steps)


@pytest.mark.parametrize(("fixed", "share"), [(20.0, 0.4), (0.0, 0.05)])
def test_auto_measures_the_steps_that_it_takes(fixed: float, share: float) -> None:
    """Where each token costs as much as the first, a few tries are all."""
    clock = CostClock(fixed)
    stand = Stand(script={"r": ROUND * 40}, speculate="auto", clock=clock)
    clock.stand = stand
    stand.generate("r", [1, 2], max_tokens=240)
    if fixed:
        assert stand.stats.accepted_tokens > share * 240
    else:
        assert 0 < stand.stats.drafted_tokens < 40


def test_drafts_are_no_longer_than_they_may_be() -> None:
    stand = Stand(script={"r": ROUND * 40}, speculate="ngram", draft_tokens=3)
    stand.generate("r", [1, 2], max_tokens=100)
    assert max(row.drafted for batch in stand.runner.steps for row in batch.rows) == 3
