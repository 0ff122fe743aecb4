"""Multi-turn chat: each turn's prompt is all that was said before."""

from __future__ import annotations

import random
from typing import Any

import sapwood as sw

from .task import Task, words


@sw.function
def program(s: sw.State, system: str, questions: list[str]) -> None:
    s += sw.system(system)
    for at, question in enumerate(questions):
        s += sw.user(question)
        s += sw.assistant(sw.gen(f"answer_{at}", max_tokens=24, ignore_eos=True))


def items(rng: random.Random, count: int) -> list[dict[str, Any]]:
    system = words(rng, 60)
    return [
        {"system": system, "questions": [words(rng, 20) for _ in range(4)]} for _ in range(count)
    ]


TASK = Task(name="multi-turn chat", program=program, items=items, count=8)
