"""The exact bytes of every token: what masks, stop strings and decoding are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

Spelling = Literal["byte-level", "metaspace", "plain"]
"""How a vocabulary spells bytes: GPT-2's table of printable characters, SentencePiece's ``▁`` for a
blank and ``<0x0A>`` for a byte, or the text itself."""

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary(NamedTuple):
    """What is known of each token id.

    ``token_bytes[id]`` are the bytes that the token adds to the output, ``None`` for an id that
    the tokenizer does not have (models often have more rows than their tokenizers have tokens).
    ``special_ids`` are control tokens: their bytes are their names, which no text should match.
    ``eos_ids`` end the output.
    """

    token_bytes: tuple[bytes | None, ...]
    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        """Highest token id + 1."""
        return len(self.token_bytes)

    @classmethod
    def from_tokenizer_json(
        cls, text: str | Mapping[str, Any], eos_ids: Iterable[int] = ()
    ) -> Vocabulary:
        """Reads a ``tokenizer.json`` (its text, or parsed)."""
        data: Mapping[str, Any] = json.loads(text) if isinstance(text, str) else text
        spelling = spelling_of(data)
        table: dict[int, bytes] = {}
        for piece, token in pieces(data["model"]):
            table[token] = piece_bytes(piece, spelling)
        added = data.get("added_tokens") or []
        for entry in added:
            table[entry["id"]] = entry["content"].encode()
        return cls(
            tuple(table.get(token) for token in range(max(table, default=-1) + 1)),
            frozenset(eos_ids),
            frozenset(entry["id"] for entry in added if entry.get("special")),
        )

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, eos_ids: Iterable[int] = ()) -> Vocabulary:
        """Reads a ``tokenizers.Tokenizer``."""
        return cls.from_tokenizer_json(tokenizer.to_str(), eos_ids)


def pieces(model: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    """The ``(piece, id)`` pairs of a tokenizer.json's model."""
    vocab = model["vocab"]
    if isinstance(vocab, Mapping):
        return vocab.items()
    return ((entry[0], token) for token, entry in enumerate(vocab))  # Unigram: (piece, score)


def spelling_of(data: Mapping[str, Any]) -> Spelling:
    """How a tokenizer.json spells bytes.

    What turns text into pieces decides, not the decoder: some files pair a byte-level pre-tokenizer
    with a decoder of SentencePiece's, and only the former can have made their vocabulary.
    """
    if _has(data.get("pre_tokenizer"), "ByteLevel"):
        return "byte-level"
    if _has(data.get("pre_tokenizer"), "Metaspace") or _has(data.get("decoder"), "Metaspace"):
        return "metaspace"
    if _has(data.get("decoder"), "ByteLevel"):
        return "byte-level"
    if data["model"].get("byte_fallback") or _replaces_blanks(data.get("normalizer")):
        return "metaspace"
    return "plain"


def piece_bytes(piece: str, spelling: Spelling) -> bytes:
    """The bytes that a piece of the vocabulary stands for."""
    if spelling == "byte-level":
        table = BYTE_OF_CHAR
        if all(char in table for char in piece):
            return bytes(table[char] for char in piece)
        return piece.encode()
    if spelling == "metaspace":
        byte = _BYTE_PIECE.fullmatch(piece)
        if byte:
            return bytes([int(byte[1], 16)])
        return piece.replace("▁", " ").encode()
    return piece.encode()


def char_of_byte() -> list[str]:
    """GPT-2's table: a printable character for each of the 256 bytes.

    Bytes that Latin-1 prints stand for themselves, the others count up from U+0100.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table, extra = [], 0x100
    for byte in range(256):
        if byte in printable:
            table.append(chr(byte))
        else:
            table.append(chr(extra))
            extra += 1
    return table


BYTE_OF_CHAR: Mapping[str, int] = {char: byte for byte, char in enumerate(char_of_byte())}


def _has(part: Any, kind: str) -> bool:
    """Whether a component of a tokenizer.json, or one of those that it is a sequence of, is one."""
    if not isinstance(part, Mapping):
        return False
    if part.get("type") == kind:
        return True
    inner = part.get("pretokenizers") or part.get("decoders") or part.get("normalizers") or ()
    return any(_has(each, kind) for each in inner)


def _replaces_blanks(part: Any) -> bool:
    if not isinstance(part, Mapping):
        return False
    if part.get("type") == "Replace" and part.get("content") == "▁":
        return True
    return any(_replaces_blanks(each) for each in part.get("normalizers") or ())
