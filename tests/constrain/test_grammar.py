"""JSON schemas against a validator, and what a matcher promises, on a vocabulary of bytes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from sapwood.constrain.compile import Compiled, ConstraintCompiler
from sapwood.constrain.grammar import Compiler
from sapwood.constrain.matcher import Matcher
from sapwood.constrain.order import in_schema_order
from sapwood.constrain.refusal import Refusal
from sapwood.constrain.spec import JsonSchema
from sapwood.constrain.vocabulary import Vocabulary

EOS, SPECIAL, WORD = 256, 257, 260
VOCABULARY = Vocabulary(
    # 258 has no text, and 260 writes across the end of a string.
    (*(bytes([b]) for b in range(256)), b"<eos>", b"<tool>", None, b"\xc3\xa9", b'a", "b": '),
    frozenset({EOS}),
    frozenset({EOS, SPECIAL}),
)
COMPILER = Compiler(VOCABULARY, lambda text: list(text.encode()))
CONSTRAINTS = ConstraintCompiler(VOCABULARY, lambda text: list(text.encode()))

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, 5, -1, 1.5, 7, "", "a", "b", "ab", "abc", "b-c", "é", "-"),
    *([], [1], ["a"], [1, 2, 3], {}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"a": "x"}),
    *({"a": "x", "b": "y"}, {"c": 1}, {"a": 1, "c": 1}, {"a": 2, "b": 2, "c": 3}, {"a": None}),
]
A, B = {"required": ["a"]}, {"required": ["b"]}
SCHEMAS: list[Any] = [
    True,
    {"not": {"type": "string"}},
    {"not": {"type": ["number", "object"]}},
    {"not": {"const": "ab"}},
    {"not": {"enum": ["", "a", "b-c", 1, 5, None]}},
    {"type": "string", "not": {"enum": ["ab", "abc", "é"]}},
    {"type": "integer", "not": {"enum": [1, 2]}},
    {"not": {"anyOf": [{"type": "array"}, {"const": True}]}},
    {"not": {"allOf": [{"type": "string"}, {"minLength": 2}]}},
    {"not": {"required": ["a", "b"]}},
    {"not": {"properties": {"a": {"type": "number"}}}},
    {"type": "number", "not": {"minimum": 2}},
    {"type": "array", "not": {"minItems": 2}},
    {"oneOf": [{"type": "number", "minimum": 1}, {"type": "number", "maximum": 3}]},
    {"type": "object", "oneOf": [A, B]},
    {"type": "object", "oneOf": [A, B, {"required": ["c"]}]},
    {"oneOf": [{"$ref": "#/$defs/x"}, {"minLength": 2}], "$defs": {"x": {"type": "string"}}},
    {
        "oneOf": [
            {"properties": {"a": {}}, "additionalProperties": False, "type": "object"},
            {"properties": {"a": {}, "b": {}}, "additionalProperties": False, "type": "object"},
        ]
    },
    {"dependentRequired": {"a": ["b"]}},
    {"dependencies": {"a": ["b"]}, "properties": {"a": {}, "b": {}}},
    {"dependentSchemas": {"a": {"properties": {"c": False}}}},
    {"if": A, "then": B},
    {"if": {"properties": {"a": {"const": 1}}}, "then": B, "else": {"type": "object"}},
    {"propertyNames": {"pattern": "^[ab]$"}, "type": "object"},
]


def compiled(schema: Any) -> Compiled:
    return CONSTRAINTS.compile(JsonSchema(schema=json.dumps(schema)))


def accepts(grammar: Any, text: str) -> bool:
    matcher = grammar.matcher()
    for token in text.encode():
        if not allowed(matcher, token):
            return False
        if matcher.advance(token) != "ok":
            return False
    return allowed(matcher, EOS)


def mask(matcher: Matcher) -> set[int]:
    row = np.full((VOCABULARY.size + 31) // 32 + 1, -1, np.int32)
    matcher.fill(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return {int(token) for token in np.flatnonzero(bits)}


def allowed(matcher: Matcher, token: int) -> bool:
    return token in mask(matcher)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_agrees_with_a_validator(schema: Any) -> None:
    """C003, C005: rewritten keywords take the same values as before."""
    grammar = compiled(schema)
    draft7 = isinstance(schema, dict) and "dependencies" in schema
    kind = jsonschema_rs.Draft7Validator if draft7 else jsonschema_rs.Draft202012Validator
    validator = kind(schema)
    for value in VALUES:
        text = json.dumps(in_schema_order(value, schema), ensure_ascii=False)
        assert accepts(grammar, text) == validator.is_valid(value), value


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        (["no", "schema"], "", ""),
        ({"type": "strin"}, "", "type"),
        ({"properties": {"a/b": {"minLength": -1}}}, "/properties/a~1b", "minLength"),
        ({"items": 3}, "", "items"),
        ({"anyOf": []}, "", "anyOf"),
        ({"required": "a"}, "", "required"),
        ({"$ref": 3}, "", "$ref"),
        ({"properties": {"a": {"divisibleBy": 2}}}, "/properties/a", "divisibleBy"),
        ({"$ref": "#/nowhere"}, "", "$ref"),
        ({"allOf": [{"$ref": "http://elsewhere/x"}]}, "/allOf/0", "$ref"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "", "$ref"),
        ({"$ref": "#/x-parts/p", "x-parts": {"p": {"minLength": -1}}}, "/x-parts/p", "minLength"),
        ({"extends": {}}, "", "extends"),
        (
            {
                "type": "array",
                "items": [{"minLength": 5, "maxLength": 3, "type": "string"}],
                "minItems": 1,
            },
            "/items/0",
            "minLength",
        ),
        (
            {
                "$ref": "#/definitions/u",
                "definitions": {
                    "u": {"type": "object", "required": ["w"], "additionalProperties": False}
                },
            },
            "/definitions/u",
            "required",
        ),
    ],
)
def test_refused_with_its_place(schema: Any, pointer: str, keyword: str) -> None:
    """C001: malformed and unenforceable schemas are refused, never run."""
    with pytest.raises(Refusal) as caught:
        compiled(schema)
    assert (caught.value.pointer, caught.value.keyword) == (pointer, keyword)


def test_a_format_that_cannot_be_enforced_is_refused() -> None:
    """C014: draft-03's ``style`` is CSS; of values that are no strings it says nothing."""
    schema = {"properties": {"a": {"type": "string", "format": "style"}}}
    with pytest.raises(Refusal) as caught:
        compiled(schema)
    assert (caught.value.pointer, caught.value.keyword) == ("/properties/a", "format")
    assert accepts(compiled({"type": "integer", "format": "style"}), "1")


def test_formats() -> None:
    """C014: formats of the drafts are held; other names are annotations."""
    date = compiled({"format": "date", "type": "string"})
    assert accepts(date, '"2024-02-29"')
    assert not accepts(date, '"2023-02-29"')
    time = compiled({"format": "date-time", "type": "string"})
    assert accepts(time, '"2000-02-29T10:00:00Z"')
    assert not accepts(time, '"1900-02-29T10:00:00Z"')
    assert accepts(time, '"2016-12-31T23:59:60Z"')
    assert not accepts(time, '"2016-12-31T22:59:60Z"')
    pointer = compiled({"format": "json-pointer", "type": "string"})
    assert accepts(pointer, '"/a~0/b"')
    assert not accepts(pointer, '"a"')
    assert accepts(compiled({"format": "colour", "type": "string"}), '"x"')


def test_keywords_that_say_nothing() -> None:
    schema = {"type": "array", "uniqueItems": False, "minContains": 2}
    assert accepts(compiled(schema), "[1, 1]")


def test_a_schema_cannot_set_the_engine_s_options() -> None:
    """C015: separators are fixed."""
    schema = {"type": "array", "x-guidance": {"whitespace_flexible": True, "lenient": True}}
    grammar = compiled(schema)
    assert accepts(grammar, "[1, 2]")
    assert not accepts(grammar, "[1,2]")
    assert not accepts(grammar, "[ 1, 2]")


def test_a_draft_s_keywords() -> None:
    schema = {"if": True, "then": False}
    named = {"$schema": "http://json-schema.org/draft-04/schema#", **schema}
    assert accepts(compiled(named), "1")
    with pytest.raises(Refusal):
        compiled(schema)


def test_special_tokens_are_never_text() -> None:
    """C023, C025: and the end token is allowed only where the text may end."""
    matcher = compiled({"type": "string"}).matcher()
    matcher.consume(b'"<')
    assert mask(matcher) & {EOS, SPECIAL, 258} == set()
    matcher.consume(b'"')
    assert mask(matcher) == {EOS}
    assert matcher.is_complete
    assert matcher.can_stop


def test_a_token_across_elements_and_characters_in_parts() -> None:
    """C026: half a character is allowed, a character that cannot be is not."""
    matcher = compiled(
        {"properties": {"a": {"enum": ["a", "é"]}, "b": {"const": 1}}, "required": ["a", "b"]}
    ).matcher()
    matcher.consume(b'{"a": "')
    assert mask(matcher) == {ord("a"), 0xC3, 259, WORD}
    matcher.consume([0xC3])
    assert mask(matcher) == {0xA9}
    matcher.rollback(1)
    matcher.consume([WORD])
    assert bytes(matcher.forced()) == b"1"


def test_a_refused_token_changes_nothing() -> None:
    matcher = COMPILER.choice(["cat", "category"]).matcher()
    fork = matcher.fork()
    with pytest.raises(ValueError, match="does not allow"):
        matcher.consume(b"cab")
    assert bytes(matcher.forced()) == b"cat"
    matcher.consume(b"cat")
    assert matcher.can_stop
    assert not matcher.is_complete
    assert bytes(fork.forced()) == b"cat"
    matcher.rollback(3)
    assert mask(matcher) == mask(fork)


def test_masks_are_what_can_be_consumed() -> None:
    for schema in (True, {"type": "integer", "minimum": 12}, {"enum": ["x", {"a": [1]}]}):
        matcher = compiled(schema).matcher()
        for token in range(VOCABULARY.size):
            fork = matcher.fork()
            try:
                fork.consume([token])
                can = True
            except ValueError:
                can = False
            assert can == allowed(matcher, token), (schema, token)


@pytest.mark.parametrize("text", ["12.75", "5", "-0.5"])
def test_regex(text: str) -> None:
    grammar = COMPILER.regex(r"-?[0-9]+(\.[0-9]+)?")
    assert accepts(grammar, text)
    assert not accepts(grammar, text + ".")


@pytest.mark.parametrize("bad", ["a)|(b", "[", "a(?=b)"])
def test_bad_expressions(bad: str) -> None:
    with pytest.raises(Refusal):
        COMPILER.regex(bad)


def test_bad_grammar() -> None:
    """C027."""
    with pytest.raises(Refusal):
        COMPILER.lark("start: missing")
    assert accepts(COMPILER.lark('start: "a" start | "b"'), "aab")
