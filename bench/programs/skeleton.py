"""Skeleton of thought: points first, then all points at once."""

from __future__ import annotations

import random
from typing import Any

import sapwood as sw

from .task import Task, words

POINTS = 5


@sw.function
def program(s: sw.State, header: str, topic: str) -> None:
    s += sw.system(header) + sw.user(f"{POINTS} points about {topic}.")
    s += sw.assistant(sw.gen("skeleton", max_tokens=30, ignore_eos=True))
    with s.fork(POINTS) as forks:
        forks += lambda i: (
            sw.user(f"Expand point {i + 1}.")
            + sw.assistant(sw.gen("paragraph", max_tokens=32, ignore_eos=True))
        )
    s += sw.user("\n".join(s["paragraph"]) + "\nSum up.")
    s += sw.assistant(sw.gen("summary", max_tokens=24, ignore_eos=True))


def items(rng: random.Random, count: int) -> list[dict[str, Any]]:
    header = words(rng, 80)
    return [{"header": header, "topic": words(rng, 6)} for _ in range(count)]


TASK = Task(name="skeleton of thought", program=program, items=items, count=4)
