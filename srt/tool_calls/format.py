"""The seam between requests and the way in which a family of models calls tools."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .layout import Layout
from .tool import Tool

Message = Mapping[str, Any]


class CallFormat(Protocol):
    """How a family of models is told of tools, calls them, and is told of results."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    @property
    def layout(self) -> Layout:
        """How calls are written."""
        ...

    @property
    def in_template(self) -> bool:
        """Whether the model's chat template writes tools, calls and results."""
        ...

    def call_id(self, key: str) -> str:
        """An id for a call; equal keys have equal ids."""
        ...

    def messages(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        """A conversation as the chat template is to be given it; what was given is not changed."""
        ...


def openai_id(key: str) -> str:
    """A call's id in OpenAI's form, from a key that no other call has."""
    return "call_" + hashlib.blake2b(key.encode(), digest_size=12).hexdigest()
