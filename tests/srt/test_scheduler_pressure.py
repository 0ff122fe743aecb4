"""Out of pages: who is pushed back, and that everybody reaches the end."""

from __future__ import annotations

import pytest

from sapwood.radix import RadixTree
from sapwood.srt.memory import PageAllocator, PrefixCache
from sapwood.srt.messages import Submit
from sapwood.srt.params import SamplingParams
from sapwood.srt.scheduler.running import RunningRows
from sapwood.srt.scheduler.task import Task
from tests.fakes.stand import Stand


def row(rows: RunningRows, cache: PrefixCache, number: int, computed: int, priority: int) -> Task:
    submit = Submit(
        rid=f"r{number}",
        choice=0,
        prompt_ids=[number] * 50,
        params=SamplingParams(max_tokens=10),
        seed=0,
        priority=priority,
    )
    task = Task(submit, 60, number, arrived=0)
    rows.enter(task, cache.open(b"", task.request.tokens, 0))
    task.request.computed = computed
    return task


def test_who_has_the_least_to_lose() -> None:
    cache = PrefixCache(RadixTree(1), PageAllocator(100))
    rows = RunningRows(cache, 8, 0)
    high = row(rows, cache, 1, computed=1, priority=1)
    often = row(rows, cache, 2, computed=2, priority=0)
    often.pushed_back = 2
    far = row(rows, cache, 3, computed=30, priority=0)
    near = row(rows, cache, 4, computed=20, priority=0)
    late = row(rows, cache, 5, computed=20, priority=0)
    order = []
    while rows:
        order.append(rows.victim())
        rows.leave(order[-1])
    assert order == [late, near, far, often, high]


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("reserve", [0, 16])
def test_rows_that_outgrow_the_pool_go_on_where_they_were(page_size: int, reserve: int) -> None:
    """Eight samples that need six pools' worth of pages, all at once."""
    prompts = [[number + 1] * 30 for number in range(8)]
    options = {"max_tokens": 100, "ignore_eos": True}
    stand = Stand(pages=176 // page_size, page_size=page_size, reserve_tokens=reserve)
    for number, prompt in enumerate(prompts):
        stand.submit(f"r{number}", prompt, **options)
    stand.run()
    for number, prompt in enumerate(prompts):
        alone = Stand(page_size=page_size).generate("r", prompt, **options)
        assert stand.results[f"r{number}", 0].ids == alone.ids
    assert stand.stats.pushed_back > 0


def test_a_reserve_saves_push_backs() -> None:
    pushed_back = []
    for reserve in (0, 64):
        stand = Stand(pages=400, reserve_tokens=reserve)
        for number in range(16):
            stand.submit(f"r{number}", [number + 1] * 40, max_tokens=64, ignore_eos=True)
        stand.run()
        pushed_back.append(stand.stats.pushed_back)
    assert pushed_back[0] > 0
    assert pushed_back[1] == 0


def test_a_higher_priority_is_not_pushed_back_for_a_lower_one() -> None:
    stand = Stand(pages=150, reserve_tokens=0)
    stand.submit("high", [1] * 20, max_tokens=100, ignore_eos=True, priority=1)
    for number in range(4):
        stand.submit(f"low{number}", [number + 2] * 30, max_tokens=60, ignore_eos=True)
    steps = 0
    while not stand.results["high", 0].ended:
        stand.step()
        steps += 1
    assert steps == 100
    stand.run()
    assert stand.stats.pushed_back > 0


def test_one_request_as_large_as_the_pool() -> None:
    """It runs to its end while others come and go."""
    stand = Stand(pages=128, page_size=1, ageing_steps=4)
    stand.submit("whole", [1] * 100, max_tokens=29, ignore_eos=True)
    for number in range(20):
        stand.submit(f"r{number}", [number + 2] * 20, max_tokens=20, ignore_eos=True)
        stand.step()
    stand.run()
    assert len(stand.results["whole", 0].ids) == 29
