"""The field's benchmarks as programs, with inputs that we make."""

from __future__ import annotations

from . import chat, extraction, judge, multi_choice, react, skeleton, tree_of_thought
from .task import Task

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        chat.TASK,
        tree_of_thought.TASK,
        react.TASK,
        multi_choice.TASK,
        extraction.TASK,
        judge.TASK,
        skeleton.TASK,
    )
}
