"""The corpus through matcher, judge of values, and a validator that is not ours."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from sapwood.constrain.compile import Compiled, ConstraintCompiler
from sapwood.constrain.evaluate import satisfies
from sapwood.constrain.order import in_schema_order
from sapwood.constrain.plan import plan
from sapwood.constrain.refusal import Refusal
from sapwood.constrain.spec import JsonSchema
from sapwood.constrain.vocabulary import Vocabulary

from .corpus import CASES, REFUSED, Case, Refused

EOS = 256
VOCABULARY = Vocabulary(
    (*(bytes([b]) for b in range(256)), b"<eos>"), frozenset({EOS}), frozenset({EOS})
)
COMPILER = ConstraintCompiler(VOCABULARY, lambda text: list(text.encode()))
WORDS = (VOCABULARY.size + 31) // 32

# Earlier spellings, read without a draft being named: a validator of one draft knows only its own.
# Nor is one asked that would fetch things.
_SPELLINGS = (
    "unused",
    "of 04",
    "a list",
    "a closed list",
    "dependencies",
    "additionalItems",
    "empty class",
    "format host-name",
    "format ip-address",
    "format color",
    "format phone",
)


def compiled(schema: Any, *, lenient: bool = False) -> Compiled:
    return COMPILER.compile(JsonSchema(schema=json.dumps(schema), lenient=lenient))


def accepts(grammar: Compiled, value: Any) -> bool:
    """Whether the matcher lets the text of a value through, byte by byte, and to its end."""
    matcher = grammar.matcher()
    row = np.zeros(WORDS, np.int32)
    for token in (*json.dumps(value, ensure_ascii=False).encode(), EOS):
        matcher.fill(row)
        if not int(row[token // 32]) >> (token % 32) & 1:
            return False
        if token != EOS and matcher.advance(token) != "ok":
            return False
    return True


def named(case: Case | Refused) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=named)
def test_is_taken_as_it_is_meant(case: Case) -> None:
    """C003, C005, C006, C008, C009, C010, C012, C014, C020: exactly the right values pass."""
    grammar = compiled(case.schema)
    for value in case.valid:
        assert accepts(grammar, in_schema_order(value, case.schema)), value
    for value in case.invalid:
        assert not accepts(grammar, in_schema_order(value, case.schema)), value


@pytest.mark.parametrize("case", CASES, ids=named)
def test_is_judged_as_it_is_meant(case: Case) -> None:
    """The judge of values alone says the same, and so does a validator of others."""
    exact = plan(case.schema).exact
    assert all(satisfies(value, exact, exact) for value in case.valid)
    assert not any(satisfies(value, exact, exact) for value in case.invalid)
    if any(each in case.name for each in _SPELLINGS):
        return
    validator = jsonschema_rs.validator_for(case.schema, validate_formats=True)
    assert all(validator.is_valid(value) for value in case.valid)
    assert not any(validator.is_valid(value) for value in case.invalid)


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_is_refused_where_it_is_at_fault(case: Refused) -> None:
    """C001, C020: never run without what it asks for; lenient schemas do without, and say so."""
    with pytest.raises(Refusal) as caught:
        compiled(case.schema)
    assert (caught.value.pointer, caught.value.keyword) == (case.pointer, case.keyword)
    if not case.lenient:
        with pytest.raises(Refusal):
            compiled(case.schema, lenient=True)
        return
    warnings = compiled(case.schema, lenient=True).warnings
    assert [(each.pointer, each.keyword) for each in warnings] == [(case.pointer, case.keyword)]


def test_names_are_unique() -> None:
    taken, refused = {case.name for case in CASES}, {case.name for case in REFUSED}
    assert len(taken) == len(CASES)
    assert len(refused) == len(REFUSED)
