"""Shared prefixes: what is in the tree, and what is being computed right now."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.srt.batch import Batch
from tests.fakes.stand import Stand

HEADER = [number % 61 + 1 for number in range(1500)]


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_cold_requests_with_one_header_compute_it_once(page_size: int) -> None:
    """Sixteen at once: the header's tokens are computed by one of them."""
    stand = Stand(pages=4096 // page_size, page_size=page_size)
    for number in range(16):
        stand.submit(f"r{number}", [*HEADER, number + 1, 9, 9], max_tokens=8, ignore_eos=True)
    stand.run()
    shared = len(HEADER) - len(HEADER) % page_size
    own = len(HEADER) + 3 - shared
    assert stand.stats.computed_prompt_tokens == shared + 16 * own
    assert [result.cached for result in stand.results.values()] == [0, *[shared] * 15]
    assert stand.stats.cached_prompt_tokens == 15 * shared


def test_rows_that_share_a_header_are_reported_as_a_group() -> None:
    stand = Stand()
    for number in range(4):
        stand.submit(f"r{number}", [*HEADER, number + 1], max_tokens=8, ignore_eos=True)
    stand.submit("other", [60, *HEADER[:40]], max_tokens=8, ignore_eos=True)
    stand.run()
    groups = [batch.groups for batch in stand.runner.steps if len(batch.rows) == 5]
    assert groups
    for (group,) in groups:
        assert (len(group.rows), group.start, group.stop) == (4, 0, len(HEADER))


def test_common_prefixes_too_short_for_a_group_are_not_reported() -> None:
    stand = Stand()
    for number in range(4):
        stand.submit(f"r{number}", [*HEADER[:31], number + 1], max_tokens=8, ignore_eos=True)
    stand.run()
    assert not any(batch.groups for batch in stand.runner.steps)


def test_choices_share_their_prompt() -> None:
    """C052: n=3; the first choice is cold, the others share with it in flight."""
    stand = Stand()
    stand.submit("r", HEADER[:100], choices=3, max_tokens=8, ignore_eos=True)
    stand.run()
    assert [result.cached for result in stand.results.values()] == [0, 99, 99]
    assert stand.stats.computed_prompt_tokens == 102
    ids = [tuple(result.ids) for result in stand.results.values()]
    assert len(set(ids)) == 3


def test_a_few_common_tokens_are_not_waited_for() -> None:
    """Nearly all prompts begin alike, with a start token, or go on alike after a cached header."""
    stand = Stand()
    for number in range(4):
        stand.submit(f"cold{number}", [5, 5, number + 1, *HEADER[:90]], max_tokens=2)
    stand.step()
    assert len(stand.runner.steps[0].rows) == 4
    stand.run()
    stand.generate("warm-up", HEADER[:100], max_tokens=1)
    for number in range(4):
        stand.submit(f"warm{number}", [*HEADER[:100], 50, number + 1], max_tokens=2)
    stand.step()
    assert len(stand.runner.steps[-1].rows) == 4
    stand.run()


def test_other_namespaces_do_not_wait_for_each_other() -> None:
    stand = Stand()
    for number in range(3):
        stand.submit(f"r{number}", HEADER[:100], namespace=bytes([number]), max_tokens=2)
    stand.step()
    assert len(stand.runner.steps[0].rows) == 3
    stand.run()
    assert all(result.cached == 0 for result in stand.results.values())


def test_unrelated_requests_do_not_wait_for_a_long_prompt() -> None:
    """They share the step with its chunks."""
    stand = Stand(max_batched_tokens=100)
    stand.submit("long", HEADER, max_tokens=2, ignore_eos=True)
    stand.step()
    stand.submit("other", [60] * 10, max_tokens=2, ignore_eos=True)
    stand.submit("follower", [*HEADER[:900], 60], max_tokens=2, ignore_eos=True)
    while not stand.results["other", 0].ended:
        stand.step()
        assert stand.results["follower", 0].opened is None
    assert not stand.results["long", 0].ended
    # The follower starts as soon as its part of the prefix is there, not when all of it is.
    while stand.results["follower", 0].opened is None:
        stand.step()
    assert not stand.results["long", 0].items
    stand.run()
    assert stand.results["follower", 0].cached == 900


@pytest.mark.parametrize("how", ["abort", "error"])
def test_the_first_waiter_takes_over_from_a_row_that_leaves(how: str) -> None:
    """What the row has computed is not computed again."""
    stand = Stand(max_batched_tokens=100, fails={"first": 0} if how == "error" else None)
    stand.submit("first", HEADER[:350] if how == "error" else HEADER, max_tokens=4)
    for number in range(3):
        stand.submit(f"r{number}", [*HEADER, number + 1], max_tokens=4, ignore_eos=True)
    for _ in range(4):
        stand.step()
    if how == "abort":
        stand.abort("first")
    stand.run()
    assert stand.stats.computed_prompt_tokens <= len(HEADER) + 3 + 100
    cached = [stand.results[f"r{number}", 0].cached for number in range(3)]
    assert 300 <= cached[0] <= 400
    assert cached[1:] == [1500, 1500]


def test_waiters_can_be_aborted() -> None:
    stand = Stand(max_batched_tokens=100)
    for number in range(4):
        stand.submit(f"r{number}", HEADER, max_tokens=4, ignore_eos=True)
    stand.step()
    for number in (1, 0, 3):
        stand.abort(f"r{number}")
        stand.step()
    stand.run()
    ends = [result.finish.reason for result in stand.results.values() if result.finish]
    assert ends == ["abort", "abort", "length", "abort"]


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 15, 16, 17, 32, 33])
def test_whole_prompt_cached(page_size: int, length: int) -> None:
    """C047: twice, three times at once, and prompt plus its own output; the last is computed."""
    stand = Stand(pages=4096 // page_size, page_size=page_size)
    options: dict[str, Any] = {"max_tokens": 5, "ignore_eos": True}
    prompt = HEADER[:length]
    first = stand.generate("a", prompt, **options)
    most = (length - 1) - (length - 1) % page_size
    again = stand.generate("b", prompt, **options)
    assert (again.ids, again.cached) == (first.ids, most)
    for number in range(3):
        stand.submit(f"c{number}", prompt, **options)
    stand.run()
    for number in range(3):
        result = stand.results[f"c{number}", 0]
        assert (result.ids, result.cached) == (first.ids, most)
    whole = [*prompt, *first.ids]
    turn = stand.generate("d", whole, **options)
    known = length + 4  # the last token drawn has no KV
    assert turn.cached == known - known % page_size


def test_second_turn_hits_the_whole_first_one() -> None:
    stand = Stand()
    first = stand.generate("a", HEADER[:50], max_tokens=20, ignore_eos=True)
    second = stand.generate("b", [*HEADER[:50], *first.ids, 1, 2, 3], max_tokens=2)
    assert second.cached == 69


def test_a_decoding_row_is_not_waited_for() -> None:
    """A prompt that goes the way of a row's output computes it, instead of one token a step."""
    whole = Stand().generate("a", [5, 6, 7], max_tokens=100, ignore_eos=True)
    stand = Stand()
    stand.submit("a", [5, 6, 7], max_tokens=100, ignore_eos=True)
    for _ in range(5):
        stand.step()
    stand.submit("b", [5, 6, 7, *whole.ids[:80]], max_tokens=1)
    stand.step()
    assert stand.results["b", 0].ended


def test_cold_alone_reports_nothing_cached_however_chunked() -> None:
    """C052"""
    result = Stand(max_batched_tokens=16).generate("r", HEADER[:200], max_tokens=3)
    assert result.cached == 0


def test_push_back_does_not_change_what_was_reported() -> None:
    """C052: nothing that a request computed itself counts, however often it starts again."""
    stand = Stand(pages=120, max_running=4, reserve_tokens=0)
    stand.generate("warm-up", HEADER[:20], max_tokens=1)
    for number in range(4):
        prompt = [*HEADER[:20], *[number + 1] * 10]
        stand.submit(f"r{number}", prompt, max_tokens=60, ignore_eos=True)
    stand.submit("cold", [50] * 25, max_tokens=60, ignore_eos=True)
    stand.run()
    assert stand.stats.pushed_back > 0
    assert stand.results["cold", 0].cached == 0
    assert all(stand.results[f"r{number}", 0].cached == 20 for number in range(4))
    counted = sum(result.cached for result in stand.results.values())
    assert stand.stats.cached_prompt_tokens == counted


def test_what_was_lost_before_the_first_token_no_longer_counts_as_cached() -> None:
    """C052: a push-back in the middle of a prompt may lose what was found."""
    stand = Stand(pages=100, max_running=2, max_batched_tokens=4, reserve_tokens=0)
    stand.generate("warm-up", HEADER[:30], max_tokens=1)
    stand.submit("important", [50] * 20, max_tokens=75, ignore_eos=True, priority=1)
    for _ in range(3):
        stand.step()
    stand.submit("r", [*HEADER[:30], *[9] * 40], max_tokens=2, ignore_eos=True)
    stand.run()
    result = stand.results["r", 0]
    assert stand.stats.pushed_back > 0
    assert result.cached < 30


def decoding(batch: Batch) -> list[bool]:
    return [row.stop - row.start == 1 for row in batch.rows]


def test_decoding_rows_go_first_and_prompts_take_what_is_left() -> None:
    stand = Stand(max_batched_tokens=50)
    for number in range(3):
        stand.submit(f"r{number}", [number + 1] * 5, max_tokens=60, ignore_eos=True)
    stand.step()
    stand.submit("long", HEADER[:300], max_tokens=2, ignore_eos=True)
    stand.submit("next", [60] * 30, max_tokens=2, ignore_eos=True)
    before = len(stand.runner.steps)
    while not stand.results["next", 0].ended:
        stand.step()
    for batch in stand.runner.steps[before : before + 6]:
        assert decoding(batch)[:3] == [True] * 3
        assert batch.n_tokens == 50
    mixed = [batch for batch in stand.runner.steps if len(batch.rows) == 5]
    assert mixed, "two prompts share a step"
    stand.run()
