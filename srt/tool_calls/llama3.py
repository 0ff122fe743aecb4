"""``{"name": ..., "parameters": ...}``: Llama 3.1 to 3.3.

The models write calls bare, or led by ``<|python_tag|>``. Their templates take one call a turn.
Bare JSON in text is a call only where it names one of the functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .format import Message, openai_id
from .layout import Layout
from .tool import Tool

LAYOUT = Layout(
    heads=('{"name": "', '<|python_tag|>{"name": "'),
    middle='", "parameters": ',
    tail="}",
    triggers=("<|python_tag|>",),
    several=False,
)


class Llama3:
    """The template tells of tools and writes calls and results."""

    name = "llama3"
    layout: ClassVar[Layout] = LAYOUT
    in_template = True

    def call_id(self, key: str) -> str:
        """OpenAI's form."""
        return openai_id(key)

    def messages(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        """As they are."""
        return list(messages)
