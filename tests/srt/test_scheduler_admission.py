"""What is accepted, what is refused, and that whatever is accepted runs to its end."""

from __future__ import annotations

import pytest

from tests.fakes.stand import Stand

POOL = 1024


@pytest.mark.parametrize("max_tokens", [0, 1, 16, None, 1000])
def test_every_length_is_answered_or_refused_and_blocks_nobody(max_tokens: int | None) -> None:
    """C053: around the size of the pool, alone and with the context twice as long."""
    for length in range(960, 1101):
        stand = Stand(pages=POOL // 16, page_size=16, context=2048)
        stand.submit("large", [1] * length, max_tokens=max_tokens, ignore_eos=True)
        stand.submit("small", [2] * 10, max_tokens=4, ignore_eos=True)
        stand.run()
        large, small = stand.results["large", 0], stand.results["small", 0]
        assert len(small.ids) == 4
        tokens = POOL + 1 - length if max_tokens is None else max_tokens
        fits = length <= POOL and length + max(tokens, 1) - 1 <= POOL
        assert (large.refused is None) == fits
        if large.refused is None:
            assert len(large.ids) == tokens
        else:
            assert large.refused.status == 400
            assert large.refused.code == "kv_pool_exceeded"
            assert str(length) in large.refused.message
            assert str(POOL) in large.refused.message


def test_cancelling_a_large_request_lets_the_others_go_on() -> None:
    """C053: the queue is empty after the cancellation."""
    stand = Stand(pages=64, page_size=16, context=2048)
    stand.submit("busy", [3] * 500, max_tokens=100, ignore_eos=True)
    stand.step()
    stand.submit("large", [1] * 1000, max_tokens=16, ignore_eos=True)
    stand.submit("small", [2] * 10, max_tokens=4, ignore_eos=True)
    stand.step()
    stand.step()
    assert stand.stats.waiting == 2
    stand.abort("large")
    stand.step()
    assert stand.stats.waiting == 0
    stand.run()
    assert len(stand.results["small", 0].ids) == 4


def test_max_tokens_to_the_end_of_the_context_is_cut_to_the_pool() -> None:
    """C053, C061: the front makes "no limit" a number; that must not be refused."""
    stand = Stand(pages=100, context=300)
    result = stand.generate("r", [1] * 90, max_tokens=210, ignore_eos=True)
    assert len(result.ids) == 11
    assert result.finish is not None
    assert result.finish.reason == "length"


@pytest.mark.parametrize(
    ("length", "max_tokens", "tokens"),
    [(126, None, 2), (127, None, 1), (127, 5, 1), (126, 5, 2), (128, 0, 0), (120, 10**12, 8)],
)
def test_output_ends_at_the_context(length: int, max_tokens: int | None, tokens: int) -> None:
    """C067, C061"""
    stand = Stand(context=128)
    result = stand.generate("r", [1] * length, max_tokens=max_tokens, ignore_eos=True)
    assert len(result.ids) == tokens
    assert result.finish is not None
    assert result.finish.reason == "length"


@pytest.mark.parametrize(
    ("length", "max_tokens"), [(128, None), (128, 1), (129, 0), (10000, None), (10000, 5)]
)
def test_prompt_beyond_the_context_is_refused(length: int, max_tokens: int | None) -> None:
    """C067: with both numbers."""
    result = Stand(context=128).generate("r", [1] * length, max_tokens=max_tokens)
    assert result.refused is not None
    assert result.refused.code == "context_length_exceeded"
    assert str(length) in result.refused.message
    assert "128" in result.refused.message
    assert not result.items


def test_empty_prompt_is_refused() -> None:
    result = Stand().generate("r", [], max_tokens=4)
    assert result.refused is not None
    assert result.refused.status == 400


def test_full_queue_refuses_with_503() -> None:
    stand = Stand(max_running=2, max_waiting=3)
    for number in range(7):
        stand.submit(f"r{number}", [number + 1] * 5, max_tokens=3, ignore_eos=True)
    stand.run()
    refused = [result.refused for result in stand.results.values()]
    assert [each is not None for each in refused] == [False] * 5 + [True] * 2
    assert refused[5] is not None
    assert (refused[5].status, refused[5].code) == (503, "queue_full")


def test_no_queue_at_all_still_runs_what_has_a_slot() -> None:
    stand = Stand(max_running=1, max_waiting=0)
    stand.submit("a", [1, 2], max_tokens=3, ignore_eos=True)
    stand.submit("b", [1, 2], max_tokens=3, ignore_eos=True)
    stand.run()
    assert len(stand.results["a", 0].ids) == 3
    assert stand.results["b", 0].refused is not None


def test_same_sample_twice_does_not_disturb_the_first() -> None:
    """C064, the scheduler's part: tables are not written over."""
    stand = Stand()
    stand.submit("r", [1, 2, 3], max_tokens=3, ignore_eos=True)
    first = stand.results["r", 0]
    stand.step()
    stand.submit("r", [4, 5, 6], max_tokens=9, ignore_eos=True)
    stand.results["r", 0] = first
    stand.run()
    assert len(first.ids) == 3
    again = stand.generate("r", [1, 2, 3], max_tokens=3, ignore_eos=True)
    assert again.ids == first.ids


@pytest.mark.parametrize("steps", [0, 2])
def test_a_later_epoch_takes_the_place_of_an_earlier_one(steps: int) -> None:
    """After a death on the way to the client a sample comes again, with the tokens it has."""
    whole = Stand().generate("r", [1, 2, 3], max_tokens=8, ignore_eos=True)
    stand = Stand()
    stand.submit("r", [1, 2, 3], max_tokens=8, ignore_eos=True)
    for _ in range(steps):
        stand.step()
    earlier = stand.results["r", 0]
    stand.submit("r", [1, 2, 3], max_tokens=8, ignore_eos=True, epoch=1, output_ids=whole.ids[:2])
    later = stand.results["r", 0]
    stand.run()
    assert later.ids == whole.ids[2:]
    assert all(item.epoch == 1 for item in later.items)
    assert len(earlier.ids) == steps


def test_rows_keep_their_slots_within_max_running() -> None:
    stand = Stand(max_running=3)
    for number in range(10):
        stand.submit(f"r{number}", [number + 1] * 4, max_tokens=number % 4 + 1, ignore_eos=True)
    stand.run()
    slots: dict[str, int | None] = {}
    for batch in stand.runner.steps:
        assert len(batch.rows) <= 3
    # Slots are given back by now, so they are read off the scheduler while it runs.
    stand.submit("again", [1, 2], max_tokens=5, ignore_eos=True)
    while stand.core.busy:
        batch = stand.scheduler.next_batch()
        assert batch is not None
        slot = batch.rows[0].request.slot
        assert slot is not None
        assert 0 <= slot < 3
        assert slots.setdefault("again", slot) == slot
        sampled = stand.runner.sample(batch, stand.runner.forward(batch))
        stand.scheduler.commit(batch, sampled)


def test_more_rows_than_tokens_in_a_step() -> None:
    """A step has no more rows than it computes tokens."""
    stand = Stand(max_running=64, max_batched_tokens=4)
    for number in range(12):
        stand.submit(f"r{number}", [number + 1] * 9, max_tokens=20, ignore_eos=True)
    stand.run()
    assert max(len(batch.rows) for batch in stand.runner.steps) == 4
