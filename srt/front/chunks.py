"""The frame around every chunk of an OpenAI stream."""

from __future__ import annotations

from .bodies import StreamOptions
from .entry import Call
from .openai_replies import DONE, ChatChunkChoice, ChunkHead, CompletionChoice, Usage, encode


class Chunks:
    """Makes frames that share id, time and model; what never changes is encoded once.

    Warnings are in the last chunk: the one with the usage, else the one that ends the last choice.
    """

    def __init__(self, call: Call, head: ChunkHead, options: StreamOptions | None) -> None:
        self._call = call
        self._head = b"data: " + encode(head)[:-1] + b',"choices":['
        self._with_usage = options is not None and bool(options.include_usage)
        self._each_usage = self._with_usage and bool(options and options.continuous_usage_stats)
        self._tail = b'],"usage":null}\n\n' if self._with_usage else b"]}\n\n"
        self._unfinished = len(call.choices)

    def frame(self, choice: ChatChunkChoice | CompletionChoice) -> bytes:
        """One choice's news. ``usage`` is null where the last chunk will have it."""
        tail = self._usage_tail(b"") if self._each_usage else self._tail
        if choice.finish_reason is not None:
            self._unfinished -= 1
            if not self._unfinished and not self._with_usage:
                tail = b"]" + self._warnings() + b"}\n\n"
        return self._head + encode(choice) + tail

    def end(self) -> bytes:
        """The usage, if it was asked for, and the mark that ends a stream."""
        if not self._with_usage:
            return DONE
        return self._head + self._usage_tail(self._warnings()) + DONE

    def _usage_tail(self, more: bytes) -> bytes:
        return b'],"usage":' + encode(Usage.of(self._call)) + more + b"}\n\n"

    def _warnings(self) -> bytes:
        found = self._call.warnings
        return b',"warnings":' + encode(found) if found else b""
