"""C014: formats against a validator that is not ours, on right strings and on broken ones."""

from __future__ import annotations

import random

import jsonschema_rs
import pytest

from sapwood.constrain.formats import PATTERNS, holds
from sapwood.constrain.keywords import DRAFT_FORMATS, FORMAT_PATTERNS, JUDGED_FORMATS

from .corpus import FORMATS

_SIGNS = "aZ09.-:/@#?%[]{}()~_+ T\\üß例\U0001f600"
_STRINGS = sorted(
    {value for case in FORMATS for value in (*case.valid, *case.invalid) if isinstance(value, str)}
)


def broken(text: str, rng: random.Random) -> str:
    """A string with a character taken out, put in or put for another."""
    at, end = rng.randint(0, len(text)), rng.randint(0, 1)
    return text[:at] + rng.choice(("", rng.choice(_SIGNS))) + text[at + end :]


# In no validator.
_DRAFT_03 = {"color", "phone", "style"}


@pytest.mark.parametrize("name", sorted(DRAFT_FORMATS - _DRAFT_03))
def test_takes_nothing_that_a_validator_does_not(name: str) -> None:
    validator = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)
    rng = random.Random(name)
    tried = [*_STRINGS, *(broken(text, rng) for text in _STRINGS for _ in range(20))]
    assert any(holds(name, text) for text in tried)
    for text in tried:
        assert not holds(name, text) or validator.is_valid(text), text


def test_every_format_is_enforced() -> None:
    assert set(PATTERNS) | JUDGED_FORMATS == DRAFT_FORMATS - {"style"}
    assert set(FORMAT_PATTERNS) <= set(PATTERNS)
    assert holds("x-unknown", "whatever")
