"""Whose turn it is: cached prefixes first, but nothing starves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from sapwood.srt.messages import Submit
from sapwood.srt.params import SamplingParams
from sapwood.srt.scheduler.task import Task
from sapwood.srt.scheduler.waiting import LOOKUPS, WaitingQueue
from tests.fakes.stand import Stand

WARM = [7] * 40


def starts(stand: Stand) -> list[str]:
    """Request ids in the order of their first step."""
    seen: dict[str, None] = {}
    for batch in stand.runner.steps:
        for row in batch.rows:
            seen.setdefault(row.request.rid)
    return list(seen)


def test_longest_cached_prefix_goes_first() -> None:
    stand = Stand(max_running=1)
    stand.generate("warm-up", WARM, max_tokens=1)
    stand.submit("cold", [9] * 40, max_tokens=1)
    stand.submit("half", [*WARM[:20], *[8] * 20], max_tokens=1)
    stand.submit("warm", [*WARM, 8], max_tokens=1)
    stand.run()
    assert starts(stand) == ["warm-up", "warm", "half", "cold"]


def test_higher_priority_goes_before_a_cached_prefix() -> None:
    stand = Stand(max_running=1)
    stand.generate("warm-up", WARM, max_tokens=1)
    stand.submit("warm", [*WARM, 8], max_tokens=1)
    stand.submit("high", [9] * 40, max_tokens=1, priority=1)
    stand.run()
    assert starts(stand) == ["warm-up", "high", "warm"]


def test_cached_prefixes_give_no_turn_over_other_namespaces() -> None:
    """Namespaces take turns: one with warm requests does not keep another waiting."""
    stand = Stand(max_running=1)
    stand.generate("warm-up", WARM, max_tokens=1, namespace=b"a")
    for number in range(3):
        stand.submit(f"a{number}", [*WARM, number + 1], max_tokens=1, namespace=b"a")
    for number in range(3):
        stand.submit(f"b{number}", [9, number + 1], max_tokens=1, namespace=b"b")
    stand.run()
    order = starts(stand)[1:]
    assert sorted(order[:2]) == ["a0", "b0"]
    assert sorted(order[2:4]) == ["a1", "b1"]


def test_same_tokens_in_another_namespace_are_not_cached() -> None:
    stand = Stand()
    stand.generate("a", WARM, max_tokens=1, namespace=b"a")
    assert stand.generate("b", WARM, max_tokens=1, namespace=b"b").cached == 0
    assert stand.generate("c", WARM, max_tokens=1, namespace=b"a").cached == 39


def keep_warm(stand: Stand, warm: int, last: Callable[[], bool]) -> Iterator[int]:
    """Keeps ``warm`` requests with a cached prefix waiting; yields the step."""
    numbers = count()
    for step in count():
        while stand.scheduler.stats().waiting < warm and not last():
            number = next(numbers)
            stand.submit(f"warm{number}", [*WARM, number % 60 + 1, number // 60], max_tokens=1)
        yield step
        stand.step()


@pytest.mark.parametrize("ageing_steps", [8, 50])
def test_a_cold_request_starts_within_the_bound(ageing_steps: int) -> None:
    """C055: eight warm requests wait at all times, one runs at a time; a cold one ages."""
    stand = Stand(max_running=1, ageing_steps=ageing_steps)
    stand.generate("warm-up", WARM, max_tokens=1)
    warm = keep_warm(stand, 8, last=lambda: False)
    for _ in range(5):
        next(warm)
    stand.submit("cold", [9] * 30, max_tokens=1)
    waited = 0
    while stand.results["cold", 0].opened is None:
        next(warm)
        waited += 1
        assert waited < 1000, "it starves"
    # What came before it, at most the eight, may go first once it has aged; and not sooner.
    assert ageing_steps <= waited <= ageing_steps + 8 + 2


def test_warm_requests_are_served_from_the_cache_while_a_cold_one_ages() -> None:
    """C055: shared prefixes are computed less often than in the order of arrival."""
    computed = {}
    for ageing_steps in (1, 1000):  # 1: everything has aged, which is the order of arrival
        # The pool holds one of the two prefixes, so that changing over costs all of it.
        stand = Stand(pages=60, max_running=1, ageing_steps=ageing_steps, reserve_tokens=0)
        for number in range(20):
            header = [7] * 40 if number % 2 else [9] * 40
            stand.submit(f"r{number}", [*header, number + 1], max_tokens=1)
        stand.run()
        computed[ageing_steps] = stand.stats.computed_prompt_tokens
    assert computed[1000] * 3 < computed[1]


def test_lower_priority_does_not_starve() -> None:
    """C055: a class that is lower by one starts after two times the ageing."""
    stand = Stand(max_running=1, ageing_steps=10)
    numbers = count()
    stand.submit("low", [9] * 10, max_tokens=1, priority=0)
    steps = 0
    while stand.results["low", 0].opened is None:
        while stand.scheduler.stats().waiting < 6:
            stand.submit(f"h{next(numbers)}", [8] * 10, max_tokens=1, priority=1)
        stand.step()
        steps += 1
        assert steps < 100, "it starves"
    assert steps > 10


def test_a_large_request_at_the_head_is_not_overtaken_once_it_has_aged() -> None:
    """C055: small requests that would fit do not keep a large one out for ever."""
    stand = Stand(pages=100, max_running=8, ageing_steps=5, reserve_tokens=0)
    numbers = count()
    stand.submit("large", [9] * 90, max_tokens=1)
    stand.submit("small", [1] * 50, max_tokens=5)
    steps = 0
    while stand.results["large", 0].opened is None:
        if stand.scheduler.stats().waiting < 3:
            number = next(numbers)
            stand.submit(f"s{number}", [number % 60 + 1] * 40, max_tokens=5, ignore_eos=True)
        stand.step()
        steps += 1
        assert steps < 100, "it starves"


def queued(number: int, namespace: bytes = b"") -> Task:
    submit = Submit(
        rid=f"r{number}",
        choice=0,
        prompt_ids=[number] * 4,
        params=SamplingParams(max_tokens=1),
        seed=0,
        namespace=namespace,
    )
    return Task(submit, 5, number, arrived=0)


def test_look_ups_of_a_step_are_few() -> None:
    """Ordering a long queue does not look at every prompt in every step."""
    looked: list[Task] = []

    def lookup(task: Task) -> int:
        looked.append(task)
        return task.number

    queue = WaitingQueue(lookup, ageing_steps=10_000)
    for number in range(1000):
        queue.push(queued(number))
    first = [task.number for task in queue.candidates(1)]
    assert len(looked) == LOOKUPS
    assert first[:LOOKUPS] == list(range(LOOKUPS))[::-1]
    list(queue.candidates(2))
    assert len(set(looked)) == 2 * LOOKUPS


def test_look_ups_are_left_out_where_there_is_no_choice() -> None:
    looked: list[Task] = []

    def lookup(task: Task) -> int:
        looked.append(task)
        return 0

    queue = WaitingQueue(lookup, ageing_steps=10)
    queue.push(queued(1, b"a"))
    queue.push(queued(2, b"b"))
    assert len(list(queue.candidates(1))) == 2
    assert not looked


def test_queue_forgets_empty_lanes() -> None:
    queue = WaitingQueue(lambda task: 0, ageing_steps=10)
    tasks = [queued(number, bytes([number])) for number in range(5)]
    for task in tasks:
        queue.push(task)
    for task in tasks:
        queue.remove(task)
    assert len(queue) == 0
    assert list(queue.candidates(1)) == []
