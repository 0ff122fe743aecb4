"""The benchmark programs run, and ask for what they say."""

from __future__ import annotations

import random

import pytest

import sapwood as sw
from bench.programs import TASKS
from bench.programs.counting import Counting
from sapwood.frontend_lang.runtime import Answer, Request, ScoreRequest
from sapwood.frontend_lang.standins import answer

GENS = {
    "multi-turn chat": (4, 0),
    "tree of thought": (3 + 18, 0),
    "ReAct agent": (9, 4),
    "multiple choice": (0, 1),
    "JSON extraction": (1, 0),
    "LLM judge": (6, 1),
    "skeleton of thought": (7, 0),
}


def script(request: Request | ScoreRequest) -> Answer | str:
    if isinstance(request, ScoreRequest):
        return str(request.continuations[0])
    text = "7" if request.sampling.regex == "[0-9]" else answer(request)
    meta = {"prompt_tokens": 3, "cached_tokens": 1, "completion_tokens": 2}
    return Answer(text=text, meta=meta)


@pytest.mark.parametrize("name", TASKS)
def test_each_program(name: str) -> None:
    task = TASKS[name]
    items = task.items(random.Random(1), 2)
    assert items == task.items(random.Random(1), 2) != task.items(random.Random(2), 2)
    runtime = Counting(sw.Scripted(script))
    task.program.run_batch(items, backend=runtime, on_error="raise")
    counts = runtime.counts
    gens, selects = GENS[name]
    assert (counts.gens, counts.selects) == (2 * gens, 2 * selects)
    assert (counts.prompt, counts.cached, counts.output) == (6 * gens, 2 * gens, 4 * gens)
