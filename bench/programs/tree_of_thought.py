"""Tree of thought: several plans, several solutions of each, and a score for each solution."""

from __future__ import annotations

import random
from typing import Any

import sapwood as sw

from .task import Task, words

WIDTH = 3


@sw.function
def program(s: sw.State, header: str, question: str) -> int:
    s += sw.system(header) + sw.user(f"Question: {question}")
    plans = s.fork(WIDTH)
    plans += lambda i: (
        sw.user(f"Plan number {i + 1}.")
        + sw.assistant(sw.gen("plan", max_tokens=16, ignore_eos=True))
    )
    solutions = [branch for plan in plans for branch in plan.fork(WIDTH)]
    for at, branch in enumerate(solutions):
        branch += sw.user(f"Carry it out, variant {at % WIDTH + 1}.")
        branch += sw.assistant(sw.gen("solution", max_tokens=24, ignore_eos=True))
        branch += sw.user("Score from 0 to 9?")
        branch += sw.assistant(sw.gen("score", regex="[0-9]", max_tokens=4))
    scores = [int(branch["score"]) for branch in solutions]
    return scores.index(max(scores))


def items(rng: random.Random, count: int) -> list[dict[str, Any]]:
    header = words(rng, 100)
    return [{"header": header, "question": words(rng, 40)} for _ in range(count)]


TASK = Task(name="tree of thought", program=program, items=items, count=3)
