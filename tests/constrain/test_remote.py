"""Schemas compiled in another process are those compiled here; what goes wrong stays there."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from sapwood.constrain import remote
from sapwood.constrain.compile import Compiled, ConstraintCompiler
from sapwood.constrain.refusal import BusyError, Refusal
from sapwood.constrain.remote import RemoteCompiler
from sapwood.constrain.spec import (
    Choice,
    Constraint,
    Grammar,
    JsonSchema,
    Regex,
    StructuralTag,
    Tag,
)
from sapwood.constrain.vocabulary import Vocabulary

VOCABULARY = Vocabulary(
    (*(bytes([byte]) for byte in range(256)), b"<end>"), frozenset({256}), frozenset({256})
)
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
ENDLESS: dict[str, Any] = {"anyOf": [POINT | {"title": str(each)} for each in range(20)]}


def encode(text: str) -> list[int]:
    return list(text.encode())


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


@pytest.fixture(scope="module")
def started() -> RemoteCompiler:
    compiler = RemoteCompiler(VOCABULARY, encode)
    start(compiler)
    return compiler


def start(compiler: RemoteCompiler) -> None:
    """The first constraint compiles here, while a process starts."""
    assert compiler.compile(JsonSchema(schema="{}"), soon()).engine == "llguidance"
    while not compiler._has_started:
        time.sleep(0.01)


def walk(compiled: Compiled) -> list[Any]:
    """Masks and endings along the shortest output."""
    matcher = compiled.matcher()
    told: list[Any] = [compiled.engine, compiled.warnings]
    for token in matcher.completion():
        row = np.zeros(9, np.int32)
        matcher.fill(row)
        told += [row.tolist(), matcher.completion(), matcher.forced()]
        assert matcher.advance(token, 100) == "ok"
    return told


@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema(schema=json.dumps(POINT)),
        JsonSchema(schema='{"type": "array", "uniqueItems": true, "minItems": 2}'),
        JsonSchema(schema='{"oneOf": [{"minimum": 3}, {"type": "integer"}]}', whitespace=2),
        JsonSchema(schema='{"type": "string", "$dynamicAnchor": "a"}', lenient=True),
        JsonSchema(
            schema='{"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "minItems": 1, '
            '"items": {"anyOf": [{"$ref": "#/$defs/n"}, {"const": 1}]}}}}'
        ),
        Choice(("spruce", "pine", "fir")),
        Choice(tuple(f"tree {each}" for each in range(300))),
        Regex("[a-f]{2,3}-(?:oak|ash)"),
        Regex("(?:[^x]{1,200}x){1,20}\\d\\x00?"),
        Regex("(?:ab?){1,150}c"),
        Grammar(syntax="ebnf", text='root ::= "(" root ")" | [0-9]+'),
        Grammar(syntax="lark", text='start: "a" | "b" start'),
        StructuralTag(
            tags=(Tag(begin="<f>", schema=json.dumps(POINT), end="</f>"),),
            triggers=("<f",),
        ),
    ],
)
def test_what_comes_back_is_what_is_made_here(
    started: RemoteCompiler, constraint: Constraint
) -> None:
    here = ConstraintCompiler(VOCABULARY, encode).compile(constraint)
    assert walk(started.compile(constraint, soon())) == walk(here)


def test_refusals_come_back_whole(started: RemoteCompiler) -> None:
    with pytest.raises(Refusal) as caught:
        started.compile(JsonSchema(schema='{"properties": {"a": {"minLength": -1}}}'), soon())
    assert (caught.value.pointer, caught.value.keyword) == ("/properties/a", "minLength")
    with pytest.raises(Refusal, match="is not closed"):
        started.compile(Regex("("), soon())


def test_one_that_is_late_is_killed_and_others_go_on(started: RemoteCompiler) -> None:
    started.compile(JsonSchema(schema="true"), soon())
    child = started._idle[False]
    with pytest.raises(TimeoutError):
        started.compile(JsonSchema(schema=json.dumps(ENDLESS)), time.monotonic())
    assert not child.is_alive
    assert walk(started.compile(JsonSchema(schema=json.dumps(POINT)), soon()))


def test_one_that_is_not_quick_goes_to_the_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "QUICK", 1e-6)
    compiler = RemoteCompiler(VOCABULARY, encode)
    start(compiler)
    constraint = JsonSchema(schema=json.dumps(ENDLESS))
    here = ConstraintCompiler(VOCABULARY, encode).compile(constraint)
    assert walk(compiler.compile(constraint, soon())) == walk(here)
    assert compiler._idle.keys() == {False, True}
    # Nor is one that the process for quick ones does not give back.
    monkeypatch.setattr(remote, "PATIENCE", 0.0)
    quick = compiler._idle[False]
    assert walk(compiler.compile(constraint, soon())) == walk(here)
    assert not quick.is_alive
    monkeypatch.setattr(remote, "MOST_WAITING", 0)
    with pytest.raises(BusyError):
        compiler.compile(constraint, soon())


def test_a_process_that_is_gone_refuses_one_constraint(started: RemoteCompiler) -> None:
    started.compile(JsonSchema(schema="true"), soon())
    for child in started._idle.values():
        child._process.kill()
        child._process.wait()
    with pytest.raises(Refusal, match="more than 1024 MB"):
        started.compile(JsonSchema(schema='{"const": 1}'), soon())
    assert started.compile(JsonSchema(schema='{"const": 1}'), soon()).engine == "llguidance"


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MEMORY", 8 << 20)
    compiler = RemoteCompiler(VOCABULARY, encode)
    start(compiler)
    huge = {"enum": [f"{each} and a good deal of other text" for each in range(100_000)]}
    with pytest.raises(Refusal, match="needs more than 8 MB"):
        compiler.compile(JsonSchema(schema=json.dumps(huge)), soon(60))


def test_what_cannot_be_sent_compiles_here() -> None:
    compiler = RemoteCompiler(VOCABULARY, lambda text: list(text.encode()))
    assert walk(compiler.compile(JsonSchema(schema=json.dumps(POINT)), soon()))
    assert not compiler._running
