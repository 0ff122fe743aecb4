"""The frame around every chunk of an OpenAI stream."""

from __future__ import annotations

from .bodies import StreamOptions
from .entry import Call
from .openai_replies import DONE, ChatChunkChoice, ChunkHead, CompletionChoice, Usage, encode


class Chunks:
    """Makes frames that share id, time and model; what never changes is encoded once."""

    def __init__(self, call: Call, head: ChunkHead, options: StreamOptions | None) -> None:
        self._call = call
        self._head = b"data: " + encode(head)[:-1] + b',"choices":['
        self._with_usage = options is not None and bool(options.include_usage)
        self._each_usage = self._with_usage and bool(options and options.continuous_usage_stats)
        self._tail = b'],"usage":null}\n\n' if self._with_usage else b"]}\n\n"

    def frame(self, choice: ChatChunkChoice | CompletionChoice) -> bytes:
        """One choice's news. ``usage`` is null where the last chunk will have it."""
        tail = self._usage_tail() if self._each_usage else self._tail
        return self._head + encode(choice) + tail

    def end(self) -> bytes:
        """The usage, if it was asked for, and the mark that ends a stream."""
        return self._head + self._usage_tail() + DONE if self._with_usage else DONE

    def _usage_tail(self) -> bytes:
        return b'],"usage":' + encode(Usage.of(self._call)) + b"}\n\n"
