"""A ReAct agent: thought, action, observation, on a header with examples that all share."""

from __future__ import annotations

import random
from typing import Any

import sapwood as sw

from .task import Task, words

STEPS = 4


@sw.function
def program(s: sw.State, header: str, question: str, facts: list[str]) -> str:
    s += header + "\nQuestion: " + question + "\n"
    for at, fact in enumerate(facts):
        s += f"Thought {at + 1}:" + sw.gen("thought", max_tokens=20, ignore_eos=True)
        s += f"\nAction {at + 1}: " + sw.select("action", ["Search", "Lookup", "Finish"])
        s += "[" + sw.gen("argument", max_tokens=6, ignore_eos=True) + "]"
        s += f"\nObservation {at + 1}: {fact}\n"
    s += "Answer:" + sw.gen("answer", max_tokens=12, ignore_eos=True)
    return str(s["answer"])


def items(rng: random.Random, count: int) -> list[dict[str, Any]]:
    header = words(rng, 600)
    return [
        {
            "header": header,
            "question": words(rng, 15),
            "facts": [words(rng, 40) for _ in range(STEPS)],
        }
        for _ in range(count)
    ]


TASK = Task(name="ReAct agent", program=program, items=items, count=6)
