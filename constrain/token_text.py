"""Between tokens and the bytes that they add."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .vocabulary import Vocabulary

_CACHED = 4096


class TokenText:
    """Tokens of texts, whatever the tokenizer does with their beginning.

    ``encode`` is the tokenizer's own. Where what it gives has other bytes than the text (it may
    add a blank, or the text be no UTF-8), the longest tokens that fit are taken instead.
    """

    __slots__ = ("_bytes", "_encode", "_end", "_ids", "_known", "_longest")

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]]) -> None:
        hidden = vocabulary.special_ids | vocabulary.eos_ids
        self._bytes = vocabulary.token_bytes
        self._encode = encode
        self._end = min(vocabulary.eos_ids)
        self._ids = {
            data: token
            for token, data in enumerate(vocabulary.token_bytes)
            if data and token not in hidden
        }
        self._longest = max(map(len, self._ids), default=0)
        self._known: dict[bytes, tuple[int, ...]] = {}

    def bytes_of(self, token: int) -> bytes:
        """What a token adds to the output."""
        return self._bytes[token] or b""

    def ending(self, text: bytes) -> tuple[int, ...]:
        """The tokens of a text and an end token. Texts are remembered: they come again."""
        tokens = self._known.get(text)
        if tokens is None:
            tokens = (*self.tokens(text), self._end)
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[text] = tokens
        return tokens

    def tokens(self, text: bytes) -> Sequence[int]:
        """Tokens with exactly these bytes."""
        try:
            tokens = list(self._encode(text.decode()))
        except UnicodeDecodeError:
            return self._greedy(text)
        if b"".join(self.bytes_of(token) for token in tokens) == text:
            return tokens
        return self._greedy(text)

    def _greedy(self, text: bytes) -> list[int]:
        tokens, at = [], 0
        while at < len(text):
            for size in range(min(self._longest, len(text) - at), 0, -1):
                token = self._ids.get(text[at : at + size])
                if token is not None:
                    tokens.append(token)
                    at += size
                    break
            else:
                raise ValueError(f"no token has the byte {text[at : at + 1]!r}")
        return tokens
