"""Multiple choice by likelihood, after examples that all questions share."""

from __future__ import annotations

import random
from typing import Any

import sapwood as sw

from .task import Task, words


@sw.function
def program(s: sw.State, examples: str, question: str, choices: list[str]) -> str:
    s += f"{examples}\nQuestion: {question}\nAnswer:"
    s += sw.select("answer", choices)
    return str(s["answer"])


def items(rng: random.Random, count: int) -> list[dict[str, Any]]:
    examples = "\n".join(f"Question: {words(rng, 30)}\nAnswer: {words(rng, 8)}" for _ in range(10))
    return [
        {
            "examples": examples,
            "question": words(rng, 40),
            "choices": [" " + words(rng, 8) for _ in range(4)],
        }
        for _ in range(count)
    ]


TASK = Task(name="multiple choice", program=program, items=items, count=24)
