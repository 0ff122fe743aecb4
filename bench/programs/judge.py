"""An LLM as judge: one essay, judged in several dimensions at once, and a verdict on all."""

from __future__ import annotations

import random
from typing import Any

import sapwood as sw

from .task import Task, words

DIMENSIONS = ("clarity", "originality", "evidence", "style", "structure", "relevance")


@sw.function
def program(s: sw.State, essay: str) -> str:
    s += sw.system("You judge essays.") + sw.user(essay)
    with s.fork(len(DIMENSIONS)) as judges:
        judges += lambda i: (
            sw.user(f"Judge its {DIMENSIONS[i]}.")
            + sw.assistant(sw.gen("judgment", max_tokens=24, ignore_eos=True))
        )
    s += sw.user("Judgments:\n" + "\n".join(s["judgment"]) + "\nGrade?")
    s += sw.assistant(sw.select("grade", ["A", "B", "C", "D"]))
    return str(s["grade"])


def items(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [{"essay": words(rng, 300)} for _ in range(count)]


TASK = Task(name="LLM judge", program=program, items=items, count=6)
