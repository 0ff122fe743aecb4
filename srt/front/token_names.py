"""Tokens as clients see them beside their log-probabilities."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence

import msgspec

from ..messages import TokenLogprobs
from ..tokenizer import Tokenizer

LOWEST = -9999.0
"""Stands for minus infinity, which JSON does not have."""


class TopLogprob(msgspec.Struct):
    """OpenAI's ``ChatCompletionTokenLogprob.top_logprobs[]``."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatLogprob(msgspec.Struct):
    """OpenAI's ``ChatCompletionTokenLogprob``."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """OpenAI's ``Choice.logprobs`` of chat completions."""

    content: list[ChatLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """OpenAI's ``Logprobs`` of completions: parallel lists."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class TokenNames:
    """Names and bytes of token ids.

    A token is named by its own bytes, whatever stands before it: by their text, or, where they are
    only a part of a character, as OpenAI does it, by ``bytes:`` and their escapes.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes = tokenizer.token_bytes
        self._special = tokenizer.special_ids

    def raw(self, token: int) -> bytes:
        """The bytes of a token; none for an id without a token."""
        return (self._bytes[token] or b"") if token < len(self._bytes) else b""

    def name(self, token: int) -> str:
        """A stable text for a token."""
        raw = self.raw(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def chat(
        self, items: Sequence[TokenLogprobs], skip_special: bool, last_is_cut: bool = False
    ) -> ChatLogprobs:
        """For chat completions. A token that the text leaves out (special, or ``last_is_cut``: the
        stop token) has no bytes, so that the bytes of all tokens joined are those of the text;
        alternatives always have theirs."""
        made = [self._chat_item(item, skip_special) for item in items]
        if last_is_cut and made:
            made[-1].bytes = None
        return ChatLogprobs(made)

    def completion(
        self,
        items: Sequence[TokenLogprobs],
        offsets: TextOffsets,
        alternatives: bool,
    ) -> CompletionLogprobs:
        """For completions; ``offsets`` goes on from call to call."""
        logprobs = CompletionLogprobs([], [], [], [])
        for item in items:
            logprobs.text_offset.append(offsets.next(self._shown(item.id, offsets.skip_special)))
            logprobs.tokens.append(self.name(item.id))
            logprobs.token_logprobs.append(finite(item.logprob))
            top = {self.name(token): finite_number(value) for token, value in item.top}
            known = alternatives and item.logprob is not None
            logprobs.top_logprobs.append(top if known else None)
        return logprobs

    def _chat_item(self, item: TokenLogprobs, skip_special: bool) -> ChatLogprob:
        hidden = skip_special and item.id in self._special
        return ChatLogprob(
            self.name(item.id),
            LOWEST if item.logprob is None else finite_number(item.logprob),
            None if hidden else list(self.raw(item.id)),
            [
                TopLogprob(self.name(token), finite_number(value), list(self.raw(token)))
                for token, value in item.top
            ],
        )

    def _shown(self, token: int, skip_special: bool) -> bytes:
        return b"" if skip_special and token in self._special else self.raw(token)


class TextOffsets:
    """Where in the text, in characters, each token starts."""

    def __init__(self, skip_special: bool, start: int = 0) -> None:
        self.skip_special = skip_special
        self._at = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, raw: bytes) -> int:
        """Offset of the token with these bytes, which follows those before."""
        at = self._at
        self._at += len(self._decoder.decode(raw))
        return at


def finite(value: float | None) -> float | None:
    """A log-probability as JSON can hold it."""
    return None if value is None else finite_number(value)


def finite_number(value: float) -> float:
    """A log-probability as JSON can hold it."""
    return value if math.isfinite(value) else LOWEST
