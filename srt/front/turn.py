"""An assistant's message in the making: text, and calls of tools."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from ..messages import Finish
from ..tool_calls import CallReader, CallStart, ContentPiece, Event
from .openai_replies import (
    CallDelta,
    CalledFunction,
    ChatDelta,
    ChatReplyMessage,
    FunctionDelta,
    ReplyCall,
)


class Turn:
    """One sample's message. Whole or in pieces, it is made of the same deltas.

    ``reader`` reads calls; without one all text is content. ``call_id`` gives the id of a call,
    counted from 0. ``named``: the request names the function to be called.
    """

    def __init__(
        self, reader: CallReader | None, call_id: Callable[[int], str], *, named: bool = False
    ) -> None:
        self._reader = reader
        self._call_id = call_id
        self._named = named
        self._shown = False

    def opening(self) -> ChatDelta:
        """The first delta. Where there may be calls there may be no content."""
        return ChatDelta("assistant", "" if self._reader is None else None)

    def deltas(self, text: str, *, ended: bool) -> list[ChatDelta]:
        """What more text adds, one thing a delta; all that is held back once it has ended."""
        if self._reader is None:
            return [ChatDelta(content=text)] if text else []
        events = self._reader.feed(text)
        if ended:
            events += self._reader.end()
        if ended and not (events or self._shown):
            events = [ContentPiece("")]  # neither text nor calls: empty text, and not nothing
        self._shown = self._shown or bool(events)
        return [self._delta(event) for event in events]

    def finish_reason(self, finish: Finish) -> str:
        """OpenAI's reason. Once the text has ended: whole calls are ``tool_calls``, but ``stop``
        where the request names the function."""
        calls = self._reader is not None and self._reader.complete and not self._named
        return "tool_calls" if calls and finish.reason == "stop" else finish.reason

    def message(self, text: str) -> ChatReplyMessage:
        """The whole message, of the whole text."""
        content, calls = [], []
        for delta in self.deltas(text, ended=True):
            if isinstance(delta.content, str):
                content.append(delta.content)
            for part in delta.tool_calls or ():
                if isinstance(part.id, str) and isinstance(part.function.name, str):
                    calls.append(ReplyCall(part.id, CalledFunction(part.function.name, "")))
                calls[-1].function.arguments += part.function.arguments
        return ChatReplyMessage("".join(content) if content or not calls else None, calls or UNSET)

    def _delta(self, event: Event) -> ChatDelta:
        if isinstance(event, ContentPiece):
            return ChatDelta(content=event.text)
        if isinstance(event, CallStart):
            function = FunctionDelta(event.name, "")
            call = CallDelta(event.call, function, self._call_id(event.call), "function")
        else:
            call = CallDelta(event.call, FunctionDelta(arguments=event.text))
        return ChatDelta(tool_calls=[call])
