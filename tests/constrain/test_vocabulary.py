"""The bytes of tokens, for every way in which vocabularies spell them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tokenizers

from sapwood.constrain.vocabulary import (
    BYTE_OF_CHAR,
    Vocabulary,
    char_of_byte,
    piece_bytes,
    spelling_of,
)

MODEL = {"type": "BPE", "vocab": {"a": 0}, "merges": []}


def test_gpt2_table() -> None:
    table = char_of_byte()
    assert len(set(table)) == 256
    assert (table[ord("A")], table[ord(" ")], table[ord("\n")]) == ("A", "Ġ", "Ċ")
    assert table[0xAD] == "Ń"
    assert set(table) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert [BYTE_OF_CHAR[char] for char in table] == list(range(256))


@pytest.mark.parametrize(
    ("piece", "spelling", "expected"),
    [
        ("ĠHello", "byte-level", b" Hello"),
        ("âĤ", "byte-level", b"\xe2\x82"),
        ("<｜User｜>", "byte-level", "<｜User｜>".encode()),
        ("▁Hello", "metaspace", b" Hello"),
        ("<0x0A>", "metaspace", b"\n"),
        ("<0xff>", "metaspace", b"\xff"),
        ("<0x0A>x", "metaspace", b"<0x0A>x"),
        ("Ġ", "metaspace", "Ġ".encode()),
        ("▁Ġ", "plain", "▁Ġ".encode()),
    ],
)
def test_bytes_of_pieces(piece: str, spelling: Any, expected: bytes) -> None:
    assert piece_bytes(piece, spelling) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, "plain"),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, "byte-level"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]}},
            "byte-level",
        ),
        ({"decoder": {"type": "ByteLevel"}}, "byte-level"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "metaspace"),
        ({"model": {**MODEL, "byte_fallback": True}}, "metaspace"),
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "content": "▁"}],
                }
            },
            "metaspace",
        ),
        (
            {
                "pre_tokenizer": {"type": "ByteLevel"},
                "decoder": {"type": "Sequence", "decoders": [{"type": "Metaspace"}]},
            },
            "byte-level",
        ),
    ],
)
def test_spelling(parts: dict[str, Any], expected: str) -> None:
    assert spelling_of({"model": MODEL, **parts}) == expected


def test_added_tokens_are_themselves_and_gaps_are_none() -> None:
    data = {
        "model": {"vocab": {"Ġa": 0, "<s>": 1}},
        "pre_tokenizer": {"type": "ByteLevel"},
        "added_tokens": [
            {"id": 1, "content": "<s>", "special": True},
            {"id": 4, "content": "Ġ x", "special": False},
        ],
    }
    vocabulary = Vocabulary.from_tokenizer_json(json.dumps(data), eos_ids=[1])
    assert vocabulary.token_bytes == (b" a", b"<s>", None, None, "Ġ x".encode())
    assert vocabulary.size == 5
    assert vocabulary.special_ids == {1}
    assert vocabulary.eos_ids == {1}


def test_from_a_tokenizer() -> None:
    pieces = [("▁a", -1.0), ("b", -2.0)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 0))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["</s>"])
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_ids=[2])
    assert vocabulary.token_bytes == (b" a", b"b", b"</s>")
    assert vocabulary.special_ids == {2}
