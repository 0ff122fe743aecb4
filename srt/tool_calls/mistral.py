"""``[TOOL_CALLS]`` and a list: Mistral 7B v0.3, Mixtral, Nemo, Large.

Their templates insist on ids of nine letters and digits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from .format import Message
from .layout import Layout
from .tool import Tool

_ID = re.compile(r"[a-zA-Z0-9]{9}")


def _layout(prefix: str) -> Layout:
    return Layout(
        heads=('{"name": "',),
        middle='", "arguments": ',
        tail="}",
        triggers=("[TOOL_CALLS]",),
        prefix=prefix,
        separator=", ",
        suffix="]",
    )


class Mistral:
    """The template tells of tools and writes calls and results; ids are made to fit it."""

    name = "mistral"
    in_template = True
    _spaced: ClassVar[Layout] = _layout("[TOOL_CALLS] [")
    _tight: ClassVar[Layout] = _layout("[TOOL_CALLS][")

    def __init__(self, *, tight: bool = False) -> None:
        self.layout = self._tight if tight else self._spaced

    def call_id(self, key: str) -> str:
        """Nine digits of a hash."""
        return hashlib.blake2b(key.encode()).hexdigest()[:9]

    def messages(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        """With ids of other servers' exchanged for ones that fit."""
        return [self._message(message) for message in messages]

    def _message(self, message: Message) -> Message:
        calls, answered = message.get("tool_calls"), message.get("tool_call_id")
        changed = dict(message)
        if isinstance(answered, str):
            changed["tool_call_id"] = self._fitting(answered)
        if isinstance(calls, list):
            changed["tool_calls"] = [self._call(call) for call in calls]
        return changed

    def _call(self, call: Any) -> Any:
        if isinstance(call, Mapping) and isinstance(call.get("id"), str):
            return {**call, "id": self._fitting(call["id"])}
        return call

    def _fitting(self, given: str) -> str:
        return given if _ID.fullmatch(given) else self.call_id(given)
