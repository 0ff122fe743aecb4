"""``<tool_call>`` and JSON: Hermes, Qwen 2.5 and 3, and whoever was trained on their form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .format import Message, openai_id
from .layout import Layout
from .tool import Tool

LAYOUT = Layout(
    heads=('<tool_call>\n{"name": "',),
    middle='", "arguments": ',
    tail="}\n</tool_call>",
    triggers=("<tool_call>",),
    separator="\n",
)


class Hermes:
    """The template tells of tools and writes calls and results."""

    name = "hermes"
    layout: ClassVar[Layout] = LAYOUT
    in_template = True

    def call_id(self, key: str) -> str:
        """OpenAI's form."""
        return openai_id(key)

    def messages(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        """As they are."""
        return list(messages)
