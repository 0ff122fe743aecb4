"""Endings: found in every state, right, and kept or looked for again as tokens come."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from sapwood.constrain.closing import Closer
from sapwood.constrain.compile import ConstraintCompiler
from sapwood.constrain.json_text import JsonText
from sapwood.constrain.matcher import Matcher
from sapwood.constrain.refusal import Refusal
from sapwood.constrain.spec import JsonSchema
from sapwood.constrain.vocabulary import Vocabulary
from sapwood.srt.checkpoint import Checkpoint

TREE: dict[str, Any] = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "kind": {"enum": ["leaf", "fork"]},
                "name": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["kind", "name", "next"],
            "additionalProperties": False,
        }
    },
}
FREE = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
DATES = {
    "type": "array",
    "minItems": 2,
    "items": {"anyOf": [{"format": "date-time"}, {"format": "uuid"}], "type": "string"},
}
NUMBERS = {
    "type": "object",
    "properties": {
        "low": {"type": "integer", "minimum": 100, "maximum": 130, "multipleOf": 7},
        "real": {"type": "number", "exclusiveMinimum": 0.5, "maximum": 0.75},
        "below": {"type": "integer", "maximum": -17},
    },
    "required": ["low", "real", "below"],
}
UNIQUE = {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"enum": [1, 2, 3, "1"]}}
CONTAINS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 9},
    "contains": {"minimum": 8},
    "minContains": 2,
    "maxContains": 2,
    "maxItems": 5,
}
ONE_OF = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
    "additionalProperties": False,
    "oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["c", "a"]}],
}
FEW = {
    "type": "object",
    "properties": {name: {"type": "boolean"} for name in "abcd"},
    "additionalProperties": False,
    "minProperties": 2,
    "maxProperties": 3,
    "dependentRequired": {"a": ["d"]},
}
IF = {
    "type": "object",
    "properties": {"kind": {"enum": ["x", "y"]}, "size": {"type": "integer"}},
    "required": ["kind"],
    "if": {"properties": {"kind": {"const": "x"}}},
    "then": {"required": ["size"], "properties": {"size": {"minimum": 10}}},
    "else": {"properties": {"size": False}},
}
NAMES = {"type": "object", "propertyNames": {"pattern": "^[ab]{2}$"}, "minProperties": 2}
SCHEMAS = {
    "tree": TREE,
    "free": FREE,
    "dates": DATES,
    "numbers": NUMBERS,
    "unique": UNIQUE,
    "contains": CONTAINS,
    "one_of": ONE_OF,
    "few": FEW,
    "if": IF,
    "names": NAMES,
}


@pytest.fixture(scope="module")
def compiler(default_checkpoint: Checkpoint) -> ConstraintCompiler:
    tokenizer = default_checkpoint.tokenizer
    return ConstraintCompiler(
        default_checkpoint.vocabulary,
        lambda text: tokenizer.encode(text, add_bos=False, control=False),
    )


def compiled(compiler: ConstraintCompiler, schema: Any, **options: Any) -> Any:
    return compiler.compile(JsonSchema(schema=json.dumps(schema), **options))


class Walk:
    """Writes tokens drawn at random from the masks."""

    def __init__(self, matcher: Matcher, vocabulary: Vocabulary, seed: int) -> None:
        self.matcher = matcher
        self.out: list[int] = []
        self._vocabulary = vocabulary
        self._row = np.zeros((vocabulary.size + 31) // 32, np.int32)
        self._rng = random.Random(seed)

    @property
    def ended(self) -> bool:
        return bool(self.out) and self.out[-1] in self._vocabulary.eos_ids

    @property
    def text(self) -> str:
        tokens = [token for token in self.out if token not in self._vocabulary.eos_ids]
        return b"".join(self._vocabulary.token_bytes[token] or b"" for token in tokens).decode()

    def allowed(self) -> list[int]:
        self.matcher.fill(self._row)
        bits = np.unpackbits(self._row.view(np.uint8), bitorder="little")
        return [int(token) for token in np.flatnonzero(bits)]

    def step(self, remaining: int | None = None) -> str:
        allowed = self.allowed()
        # Short tokens and long ones alike: among all, those that only go on in a string are many.
        some = self._rng.sample(allowed, min(6, len(allowed)))
        token = min(some, key=lambda token: len(self._vocabulary.token_bytes[token] or b""))
        verdict = self.matcher.advance(token, remaining)
        if verdict == "ok":
            self.out.append(token)
        return verdict

    def close(self) -> None:
        for token in self.matcher.completion():
            assert token in self.allowed()
            assert self.matcher.advance(token) == "ok"
            self.out.append(token)


@pytest.mark.parametrize("name", SCHEMAS)
def test_c020_every_state_has_an_ending_that_is_right(
    compiler: ConstraintCompiler, default_checkpoint: Checkpoint, name: str
) -> None:
    grammar = compiled(compiler, SCHEMAS[name])
    validator = jsonschema_rs.Draft202012Validator(SCHEMAS[name], validate_formats=True)
    for seed in range(12):
        walk = Walk(grammar.matcher(), default_checkpoint.vocabulary, seed)
        for _ in range(seed * 3):
            if walk.step(10**6) == "ok" and walk.ended:
                break
            assert walk.matcher.completion(), walk.text
        if not walk.ended:
            walk.close()
        assert validator.is_valid(json.loads(walk.text)), walk.text


@pytest.mark.parametrize("name", SCHEMAS)
def test_c017_a_budget_is_kept(
    compiler: ConstraintCompiler, default_checkpoint: Checkpoint, name: str
) -> None:
    grammar = compiled(compiler, SCHEMAS[name])
    least = len(grammar.matcher().completion())
    validator = jsonschema_rs.Draft202012Validator(SCHEMAS[name], validate_formats=True)
    for room in (0, 1, 5, 17):
        walk = Walk(grammar.matcher(), default_checkpoint.vocabulary, room)
        while not walk.ended:
            left = least + room - len(walk.out) - 1
            if walk.step(left) != "ok":
                token = walk.matcher.completion()[0]
                assert walk.matcher.advance(token, left) == "ok"
                walk.out.append(token)
        assert len(walk.out) <= least + room
        assert validator.is_valid(json.loads(walk.text)), walk.text


@pytest.mark.parametrize("name", SCHEMAS)
def test_forks_and_rollbacks_are_places_of_their_own(
    compiler: ConstraintCompiler, default_checkpoint: Checkpoint, name: str
) -> None:
    vocabulary = default_checkpoint.vocabulary
    walk = Walk(compiled(compiler, SCHEMAS[name]).matcher(), vocabulary, 7)
    for _ in range(6):
        walk.step()
    before, known = walk.allowed(), walk.matcher.completion()
    fork = walk.matcher.fork()
    length = len(walk.out)
    for _ in range(5):
        if not walk.ended:
            walk.step()
    walk.matcher.rollback(len(walk.out) - length)
    assert walk.allowed() == before
    assert walk.matcher.completion() == known
    assert Walk(fork, vocabulary, 0).allowed() == before
    with pytest.raises(ValueError, match="cannot take"):
        walk.matcher.rollback(1000)


def test_what_follows_the_known_ending_keeps_it(compiler: ConstraintCompiler) -> None:
    matcher = compiled(compiler, TREE).matcher()
    way = matcher.completion()
    for place, token in enumerate(way):
        assert matcher.advance(token, len(way) - place - 1) == "ok"
        assert matcher.completion()[-1:] == way[-1:]


def test_a_veto_comes_with_the_token_that_completes_the_wrong(
    compiler: ConstraintCompiler, default_checkpoint: Checkpoint
) -> None:
    encode = default_checkpoint.tokenizer.encode
    matcher = compiled(compiler, UNIQUE).matcher()
    for token in encode("[1, 2", add_bos=False):
        assert matcher.advance(token) == "ok"
    ids = encode(", 2", add_bos=False)
    verdicts = [matcher.advance(token) for token in ids[:-1]]
    assert set(verdicts) == {"ok"}
    assert matcher.advance(ids[-1]) == "veto"
    assert matcher.advance(encode("3", add_bos=False)[0]) == "ok"


def test_a_number_at_the_top_ends_only_where_it_is_right(
    compiler: ConstraintCompiler, default_checkpoint: Checkpoint
) -> None:
    schema = {"type": "integer", "not": {"multipleOf": 5}, "minimum": 1}
    walk = Walk(compiled(compiler, schema).matcher(), default_checkpoint.vocabulary, 0)
    (end,) = default_checkpoint.vocabulary.eos_ids
    for digit, may_end in (("1", True), ("5", False), ("2", True)):
        token = default_checkpoint.tokenizer.encode(digit, add_bos=False)[0]
        assert walk.matcher.advance(token) == "ok"
        assert walk.matcher.can_stop is may_end
        assert (end in walk.allowed()) is may_end


@pytest.mark.parametrize("text", ["1e999", "-1e-999", "0.99999999999999999999"])
def test_numbers_that_no_double_holds_are_vetoed(
    compiler: ConstraintCompiler, default_checkpoint: Checkpoint, text: str
) -> None:
    matcher = compiled(compiler, {"type": "number"}).matcher()
    ids = default_checkpoint.tokenizer.encode(text, add_bos=False)
    assert "veto" in [matcher.advance(token) for token in ids]


def test_c015_blanks_are_fixed_or_bounded(
    compiler: ConstraintCompiler, default_checkpoint: Checkpoint
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    def takes(text: str, whitespace: int) -> bool:
        matcher = compiled(compiler, schema, whitespace=whitespace).matcher()
        try:
            ids = default_checkpoint.tokenizer.encode(text, add_bos=False)
            return all(matcher.advance(token, 50) == "ok" for token in ids)
        except ValueError:
            return False

    assert takes('{"a": 1}', 0)
    assert not takes('{"a":1}', 0)
    assert not takes('{\n "a": 1}', 0)
    assert takes('{"a":1}', 2)
    assert takes('{\n "a": 1\n}', 2)
    assert not takes('{\n\n\n\n"a": 1}', 2)


def test_unions_of_hundreds_of_objects_survive(
    compiler: ConstraintCompiler, default_checkpoint: Checkpoint
) -> None:
    def event(i: int) -> dict[str, Any]:
        names = {f"p{j}": {"type": "string"} for j in range(10)} | {f"x{i}": {"type": "integer"}}
        return {"type": "object", "properties": names, "additionalProperties": False}

    schema = {"anyOf": [event(i) for i in range(200)]}
    grammar = compiled(compiler, schema)
    encode = default_checkpoint.tokenizer.encode

    def takes(value: Any) -> bool:
        matcher = grammar.matcher()
        try:
            ids = encode(json.dumps(value), add_bos=False)
            return all(matcher.advance(token) == "ok" for token in ids) and matcher.can_stop
        except ValueError:
            return False

    assert takes({"p0": "a", "p7": "b", "x150": 1})
    assert not takes({"p0": "a", "x1": 1, "x2": 2})  # keys of two of them


def test_c005_without_any_value_a_schema_is_refused(compiler: ConstraintCompiler) -> None:
    with pytest.raises(Refusal):
        compiled(compiler, {"type": "integer", "minimum": 3, "maximum": 2})
    with pytest.raises(Refusal):
        compiled(
            compiler,
            {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"type": "boolean"}},
        )


def test_an_answer_that_doubles_at_each_level_is_not_written() -> None:
    pairs: dict[str, object] = {"d0": {"type": "null"}}
    for level in range(1, 20):
        inner = {"$ref": f"#/$defs/d{level - 1}"}
        pairs[f"d{level}"] = {
            "type": "array",
            "prefixItems": [inner, inner],
            "items": False,
            "minItems": 2,
        }
    assert next(Closer({"$ref": "#/$defs/d3", "$defs": pairs}).endings(JsonText()), None)
    assert next(Closer({"$ref": "#/$defs/d19", "$defs": pairs}).endings(JsonText()), None) is None
