"""Automata of regular expressions, and the shortest ways to a match."""

from __future__ import annotations

import re

import pytest

from sapwood.constrain.text_pattern import pattern, shortest

ENDINGS = [
    (r"^[a-z]+-\d+$", "ab"),
    (r"^(\d{4}-\d\d|x)$", "12"),
    (r"^a|b$", "z"),
    (r"^\S+@\S+\.\S+$", "q@"),
    (r"abc", "xab"),
    (r"^$", ""),
    (r"^(foo|foobar)!$", "foob"),
    (r"^[^a-z]{3}$", "A"),
    (r"^(a{2,3}){2}$", "aaa"),
    (r"^.{5}$", "ab"),
    (r"^(?:x|y)*z$", "xyx"),
    (r"^\w+\s\W$", "ab"),
    (r"^[\d.,]+%$", "1"),
]


@pytest.mark.parametrize(("expression", "begun"), ENDINGS)
def test_endings_match(expression: str, begun: str) -> None:
    found = pattern(expression)
    assert found is not None
    ending = shortest([found], begun)
    assert ending is not None
    assert re.search(expression, begun + ending)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (r"^a|b$", "ax"),
        (r"^a|b$", "xb"),
        (r"^a|b$", "xbx"),
        (r"b", "abc"),
        (r"^a$", "ab"),
        ("", ""),
    ],
)
def test_acceptance_is_that_of_a_search(expression: str, text: str) -> None:
    found = pattern(expression)
    assert found is not None
    assert found.accepts(found.after(text)) is bool(re.search(expression, text))


def test_no_way_where_there_is_none() -> None:
    found = pattern("^ab$")
    assert found is not None
    assert shortest([found], "b") is None
    assert shortest([found], "abc") is None


def test_several_patterns_and_lengths_hold_together() -> None:
    both = [pattern("^[a-z0-9]+$"), pattern(r"\d\d")]
    ending = shortest([each for each in both if each], "a", low=8, high=10)
    assert ending is not None
    assert re.fullmatch("[a-z0-9]{8,10}", "a" + ending)
    assert re.search(r"\d\d", "a" + ending)
    assert shortest([each for each in both if each], "aaa", high=4) is None


@pytest.mark.parametrize("expression", [r"(a)\1", r"(?=a)b", r"\bword\b", "(", r"\p{L}", "a{5000}"])
def test_what_cannot_be_read_gives_no_automaton(expression: str) -> None:
    assert pattern(expression) is None
