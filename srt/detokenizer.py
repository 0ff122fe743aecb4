"""From tokens to text that may be shown: whole characters, and nothing of a stop string.

Text is cut in bytes, before they are read as UTF-8: tokens are byte strings that may end anywhere,
and the worker matches stop strings over the same bytes. The worker decides where a sample ends;
here text is only held back and cut.
"""

from __future__ import annotations

import codecs
import gc
from collections.abc import Collection, Sequence
from pathlib import Path

import zmq

from .channel import Receiver, Sender
from .checkpoint import open_checkpoint
from .messages import (
    Delta,
    Deltas,
    Finish,
    Opened,
    Refused,
    ToDetokenizer,
    ToFront,
    TokenItem,
    Tokens,
)
from .processes.lifeline import Lifeline, Start

_Utf8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Gives every message of the worker its text.

    ``token_bytes[id]`` are the exact bytes of a token (``None``: there is no such token),
    ``special_ids`` those that are no text where a request skips special tokens.
    """

    def __init__(
        self, token_bytes: Sequence[bytes | None], special_ids: Collection[int] = ()
    ) -> None:
        self._shown = [raw or b"" for raw in token_bytes]
        self._plain = list(self._shown)
        for token in special_ids:
            if token < len(self._plain):
                self._plain[token] = b""
        self._writing: dict[tuple[str, int], Writing] = {}

    def __len__(self) -> int:
        """Samples in the making."""
        return len(self._writing)

    def feed(self, message: ToDetokenizer) -> ToFront | None:
        """What the front is to be told; ``None`` for an ``Opened``."""
        if isinstance(message, Tokens):
            items = [self._delta(item) for item in message.items]
            return Deltas([item for item in items if item is not None], message.stats)
        if isinstance(message, Opened):
            table = self._plain if message.skip_special_tokens else self._shown
            self._writing[message.rid, message.choice] = Writing(message, table)
            return None
        if isinstance(message, Refused):
            self._writing.pop((message.rid, message.choice), None)
        return message

    def _delta(self, item: TokenItem) -> Delta | None:
        key = (item.rid, item.choice)
        writing = self._writing.get(key)
        if writing is not None and writing.epoch != item.epoch:
            return None  # of a run that was given up; the front wants none of it either
        if writing is None:  # ended before it opened, or nothing more than its tokens is known
            opened = Opened(rid=item.rid, choice=item.choice, epoch=item.epoch)
            writing = self._writing[key] = Writing(opened, self._plain)
        if item.finish is not None:
            del self._writing[key]
        return Delta(
            item.rid,
            item.choice,
            item.epoch,
            item.index,
            item.ids,
            writing.add(item.ids, item.finish),
            item.cached,
            item.logprobs,
            item.prompt_logprobs,
            item.finish,
        )


class Writing:
    """One sample's text in the making: what is held back, and half a character perhaps.

    ``table[id]`` are the bytes that each token shows.
    """

    __slots__ = ("_decoder", "_held", "_include_stop", "_ready", "_stops", "_table", "epoch")

    def __init__(self, opened: Opened, table: Sequence[bytes]) -> None:
        self.epoch = opened.epoch
        self._table = table
        self._stops = tuple(stop.encode("utf-8", "surrogatepass") for stop in opened.stop)
        self._include_stop = opened.include_stop
        self._held = b""
        self._decoder = _Utf8("replace")
        self._ready = ""
        if opened.output_ids:  # the client has a part of these tokens' text
            self._ready = self.add(opened.output_ids, None)[opened.delivered :]

    def add(self, ids: Sequence[int], finish: Finish | None) -> str:
        """The text that may be shown now that ``ids`` have come; all of it with a ``finish``."""
        table = self._table
        pieces = [table[token] if token < len(table) else b"" for token in ids]
        if finish is not None:
            raw = self._last(pieces, finish)
        else:
            raw = self._held + b"".join(pieces)
            keep = longest_start(raw, self._stops)
            self._held = raw[len(raw) - keep :]
            raw = raw[: len(raw) - keep]
        text = self._ready + self._decoder.decode(raw, finish is not None)
        self._ready = ""
        return text

    def _last(self, pieces: list[bytes], finish: Finish) -> bytes:
        """The bytes that are still to be shown at the end."""
        matched = finish.matched if finish.reason == "stop" else None
        if isinstance(matched, int) and pieces and not self._include_stop:
            pieces = pieces[:-1]  # the stop token itself
        raw = self._held + b"".join(pieces)
        if isinstance(matched, str):
            stop = matched.encode("utf-8", "surrogatepass")
            # The match ends in the last token: one before it was not to stop (min_tokens).
            before = len(raw) - len(pieces[-1] if pieces else b"")
            place = raw.find(stop, max(0, before - len(stop) + 1))
            if place >= 0:
                return raw[: place + (len(stop) if self._include_stop else 0)]
        return raw


def longest_start(raw: bytes, stops: Sequence[bytes]) -> int:
    """Length of the longest end of ``raw`` with which a stop string begins, short of all of it."""
    longest = 0
    for stop in stops:
        for length in range(min(len(stop) - 1, len(raw)), longest, -1):
            if raw.endswith(stop[:length]):
                longest = length
                break
    return longest


def run(start: Start, lifeline: Lifeline) -> None:
    """The detokenizer's process."""
    context = zmq.Context(1)
    receiver: Receiver[ToDetokenizer] = Receiver(context, start.paths.to_detokenizer, ToDetokenizer)
    sender: Sender[ToFront] = Sender(context, start.paths.to_front)
    tokenizer = open_checkpoint(Path(start.model)).tokenizer
    detokenizer = Detokenizer(tokenizer.token_bytes, tokenizer.special_ids)
    sender.wait_connected()
    gc.freeze()
    lifeline.ready({})
    while True:
        messages = receiver.drain(None)
        lifeline.pulse.begin()
        for message in messages:
            reply = detokenizer.feed(message)
            if reply is not None:
                sender.send(reply)
        lifeline.pulse.end()
