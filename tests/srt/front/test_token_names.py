"""Names and bytes of tokens, for vocabularies of whole words, pieces of characters and bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.srt.checkpoint import Checkpoint
from sapwood.srt.front.token_names import TokenNames
from sapwood.srt.messages import TokenLogprobs

TEXT = "ok 😊“ é"


def byte_fallback() -> tuple[Any, list[int]]:
    """A SentencePiece vocabulary: bytes at 3 + value, then pieces with their blank."""
    table = [b"", b"", b"", *(bytes([value]) for value in range(256)), b"ok", b" ", b"\xc3\xa9"]
    emoji = [3 + byte for byte in "😊“".encode()]
    return SimpleNamespace(token_bytes=tuple(table), special_ids=frozenset({0, 1, 2})), [
        259,
        260,
        *emoji,
        260,
        261,
    ]


@pytest.fixture(params=["byte-level", "byte fallback"])
def case(request: pytest.FixtureRequest) -> tuple[Any, list[int]]:
    if request.param == "byte fallback":
        return byte_fallback()
    checkpoint: Checkpoint = request.getfixturevalue("default_checkpoint")
    tokenizer = checkpoint.tokenizer
    return tokenizer, tokenizer.encode(TEXT)


def test_c042_bytes_joined_are_the_text_in_both_vocabularies(case: tuple[Any, list[int]]) -> None:
    """C042: also where a token is a part of a character; every alternative has its own bytes."""
    tokenizer, ids = case
    names = TokenNames(tokenizer)
    others = [(token, -2.0) for token in ids[:3]]
    items = [TokenLogprobs(token, -1.0, [(token, -1.0), *others]) for token in ids]
    content = names.chat(items, skip_special=True).content
    assert len(content) == len(ids)
    assert b"".join(bytes(item.bytes or ()) for item in content) == TEXT.encode()
    assert any(item.token.startswith("bytes:") for item in content)
    for item in content:
        assert "\ufffd" not in item.token
        assert all(top.bytes for top in item.top_logprobs)
        assert item.top_logprobs[0].token == item.token
        assert item.top_logprobs[0].logprob == item.logprob
