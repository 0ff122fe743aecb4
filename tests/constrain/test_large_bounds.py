"""Large bounds of texts, lists and enums."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sapwood.constrain.compile import ConstraintCompiler
from sapwood.constrain.spec import JsonSchema
from sapwood.constrain.vocabulary import Vocabulary

from .test_schema_corpus import accepts, compiled

_EOS, _BLOCK = 256, 100
_WAVE = "\N{WAVING HAND SIGN}"
_CODES = [f"{code:04}" for code in range(0, 8192, 2)]


def accepts_blocks(schema: Any, letter: str, count: int) -> bool:
    """Whether a text of so many letters passes, written a hundred at a time."""
    words = (*(bytes([b]) for b in range(256)), b"<eos>", (letter * _BLOCK).encode())
    vocabulary = Vocabulary(words, frozenset({_EOS}), frozenset({_EOS}))
    compiler = ConstraintCompiler(vocabulary, lambda text: list(text.encode()))
    matcher = compiler.compile(JsonSchema(schema=json.dumps(schema))).matcher()
    row = np.zeros((vocabulary.size + 31) // 32, np.int32)
    blocks, ones = divmod(count, _BLOCK)
    body = [257] * blocks + [*letter.encode()] * ones
    for token in (ord('"'), *body, ord('"'), _EOS):
        matcher.fill(row)
        if not int(row[token // 32]) >> (token % 32) & 1:
            return False
        if token != _EOS and matcher.advance(token) != "ok":
            return False
    return True


@pytest.mark.parametrize("letter", ["a", "é", _WAVE])
@pytest.mark.parametrize("bound", [1999, 2000, 2001, 100_000])
def test_c019_greatest_lengths_count_characters(bound: int, letter: str) -> None:
    schema = {"type": "string", "maxLength": bound}
    assert accepts_blocks(schema, letter, bound)
    assert not accepts_blocks(schema, letter, bound + 1)


@pytest.mark.parametrize("letter", ["a", "é", _WAVE, "\n"])
@pytest.mark.parametrize("bound", [128, 129, 200])
def test_c019_least_lengths_count_characters(bound: int, letter: str) -> None:
    grammar = compiled({"type": "string", "minLength": bound})
    assert accepts(grammar, letter * bound)
    assert not accepts(grammar, letter * (bound - 1))


def test_c019_a_list_of_objects_with_long_texts() -> None:
    text = {"type": "string", "maxLength": 2000}
    item = {"type": "object", "properties": {"t": text}, "required": ["t"]}
    grammar = compiled({"type": "array", "items": item, "maxItems": 50})
    assert accepts(grammar, [{"t": "x"}] * 49 + [{"t": "x" * 2000}])
    assert not accepts(grammar, [{"t": "x"}] * 49 + [{"t": "x" * 2001}])
    assert not accepts(grammar, [{"t": "x"}] * 51)


def test_c019_an_enum_of_thousands() -> None:
    grammar = compiled({"type": "string", "maxLength": 4, "enum": _CODES})
    assert len(_CODES) == 4096
    assert all(accepts(grammar, code) for code in (*_CODES[::512], _CODES[-1]))
    assert not any(accepts(grammar, code) for code in ("0001", "8192", "000", "00000"))
