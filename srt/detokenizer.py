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
from .stops import Match, StopMatcher, TokenText

_Utf8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Gives every message of the worker its text.

    ``token_bytes[id]`` are the exact bytes of a token (``None``: there is no such token),
    ``special_ids`` those that are no text where a request skips special tokens.
    """

    def __init__(
        self, token_bytes: Sequence[bytes | None], special_ids: Collection[int] = ()
    ) -> None:
        self._text = TokenText(token_bytes, special_ids)
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
            self._writing[message.rid, message.choice] = Writing(message, self._text)
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
            writing = self._writing[key] = Writing(opened, self._text)
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
            item.warnings,
        )


class Writing:
    """One sample's text in the making: what is held back, and half a character perhaps."""

    __slots__ = (
        "_decoder",
        "_held",
        "_include_stop",
        "_matcher",
        "_ready",
        "_shown",
        "_shown_ids",
        "_skip",
        "_text",
        "epoch",
    )

    def __init__(self, opened: Opened, text: TokenText) -> None:
        self.epoch = opened.epoch
        self._text = text
        self._skip = opened.skip_special_tokens
        self._shown_ids = opened.shown_ids
        self._include_stop = opened.include_stop
        self._matcher = StopMatcher(opened.stop) if opened.stop else None
        self._decoder = _Utf8("replace")
        self._shown = 0  # bytes let go so far
        self._held = b""
        self._ready = ""
        if opened.output_ids:  # the client has a part of these tokens' text
            self._ready = self.add(opened.output_ids, None)[opened.delivered :]

    def add(self, ids: Sequence[int], finish: Finish | None) -> str:
        """The text that may be shown now that ``ids`` have come; all of it with a ``finish``."""
        pieces = [self._text.of(token, self._skip, self._shown_ids) for token in ids]
        if finish is not None and ids and self._is_stop_token(finish):
            pieces.pop()
        match = self._search(pieces)
        raw = self._held + b"".join(pieces)
        if finish is None:
            keep = self._matcher.held() if self._matcher is not None else 0
        elif match is not None and finish.reason == "stop" and isinstance(finish.matched, str):
            end = match.end if self._include_stop else match.start
            keep = len(raw) - (end - self._shown)
        else:
            keep = 0
        let_go = len(raw) - keep
        self._held = raw[let_go:]
        self._shown += let_go
        text = self._ready + self._decoder.decode(raw[:let_go], finish is not None)
        self._ready = ""
        return text

    def _is_stop_token(self, finish: Finish) -> bool:
        """Whether the last token ended the sample, and is no text."""
        by_token = finish.reason == "stop" and isinstance(finish.matched, int)
        return by_token and not self._include_stop

    def _search(self, pieces: Sequence[bytes]) -> Match | None:
        """The match that ends in the last token: where one ended before, it was not to stop yet."""
        match = None
        if self._matcher is not None:
            for piece in pieces:
                match = self._matcher.feed(piece)
        return match


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
