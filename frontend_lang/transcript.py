"""What a state has written so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .runtime import Message, Prompt


class Transcript:
    """A plain text, or a chat: the first role decides, and the two do not mix.

    The model's template says what stands between messages, so text outside a role has no place in
    a chat and is refused.
    """

    __slots__ = ("_calls", "_fields", "_open", "_role", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._role: str | None = None
        self._open: list[str] = []
        self._fields: Mapping[str, Any] = {}
        self._calls: tuple[Mapping[str, Any], ...] = ()

    def copy(self) -> Transcript:
        """The same, to go on by itself."""
        other = Transcript()
        other.messages = list(self.messages)
        other._role = self._role
        other._open = list(self._open)
        other._fields = self._fields
        other._calls = self._calls
        return other

    @property
    def is_chat(self) -> bool:
        """Whether a role was ever opened."""
        return bool(self.messages) or self._role is not None

    @property
    def role(self) -> str | None:
        """The open role."""
        return self._role

    @property
    def open_text(self) -> str:
        """The plain text, or what stands in the open role."""
        if len(self._open) > 1:
            self._open = ["".join(self._open)]
        return self._open[0] if self._open else ""

    def write(self, text: str) -> None:
        """Appends; ``ValueError`` between two roles of a chat."""
        if not text:
            return
        if self.messages and self._role is None:
            raise ValueError(
                f"text outside a role in a program that uses roles: {text[:40]!r}; "
                "put it into system(), user() or assistant()"
            )
        self._open.append(text)

    def begin(self, role: str, fields: Mapping[str, Any] | None = None) -> None:
        """Opens a role; ``ValueError`` inside another one or after plain text."""
        if self._role is not None:
            raise ValueError(f"{role} begins inside {self._role}: roles do not nest")
        if self._open:
            raise ValueError(
                f"{role} begins after text outside a role: {self.open_text[:40]!r}; "
                "a program either uses roles for all of its text or for none"
            )
        self._role = role
        self._fields = fields or {}
        self._calls = ()

    def call(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Adds calls of tools to the assistant's open message."""
        self._calls = (*self._calls, *calls)

    def end(self, role: str) -> None:
        """Closes a role; ``ValueError`` unless it is open."""
        if self._role != role:
            raise ValueError(f"{role} ends, but {self._role or 'no role'} is open")
        self.messages.append(self._message())
        self._role = None
        self._open = []

    def prompt(self) -> Prompt:
        """What the model goes on from; ``ValueError`` where the model has no turn."""
        if self.is_chat and self._role != "assistant":
            where = f"inside {self._role}" if self._role else "outside a role"
            raise ValueError(
                f"gen or select {where} in a program that uses roles: only the assistant answers"
            )
        if self._calls:
            raise ValueError("the assistant's message ends with its calls of tools")
        return Prompt(messages=tuple(self.messages), text=self.open_text, opens=self.is_chat)

    def written(self) -> Prompt:
        """All that stands here, without a turn of the model's to come."""
        if self._role == "assistant":
            return Prompt(messages=tuple(self.messages), text=self.open_text, opens=True)
        if self.is_chat:
            return Prompt(messages=self.whole())
        return Prompt(text=self.open_text)

    def whole(self) -> tuple[Message, ...]:
        """All messages, the open one included."""
        if self._role is None:
            return tuple(self.messages)
        return (*self.messages, self._message())

    def _message(self) -> Message:
        assert self._role is not None, "only an open role makes a message"
        return Message(self._role, self.open_text, self._calls, self._fields.get("tool_call_id"))
