"""A prompt as a chat in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .runtime import Prompt

LEAD = Prompt(text="\n")
"""What stands before the first token where nothing else does: only so has it a likelihood."""


def chat(prompt: Prompt) -> list[Mapping[str, Any]]:
    """A chat's messages in OpenAI's form, the one that has begun included."""
    messages: list[Mapping[str, Any]] = [message.as_dict() for message in prompt.messages]
    if prompt.text:
        messages.append({"role": "assistant", "content": prompt.text})
    return messages


def chat_options(prompt: Prompt, opens: bool = True) -> dict[str, bool]:
    """How a chat's end is written: an answer begins, goes on, or is not begun."""
    goes_on = bool(prompt.text)
    return {"add_generation_prompt": opens and not goes_on, "continue_final_message": goes_on}


def shared(base: Sequence[int], wholes: Sequence[Sequence[int]]) -> int:
    """How many ids all have in common at their beginning, each whole with one to spare."""
    most = min(len(base), *(len(ids) - 1 for ids in wholes))
    at = 0
    while at < most and all(ids[at] == base[at] for ids in wholes):
        at += 1
    return at
