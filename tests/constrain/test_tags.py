"""Free text with tagged JSON in it, on a vocabulary of bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sapwood.constrain.compile import ConstraintCompiler
from sapwood.constrain.matcher import Matcher
from sapwood.constrain.refusal import Refusal
from sapwood.constrain.spec import StructuralTag, Tag
from sapwood.constrain.vocabulary import Vocabulary

EOS, SPECIAL, OTHER, WIDE = 256, 257, 258, 259
VOCABULARY = Vocabulary(
    (*(bytes([b]) for b in range(256)), b"<eos>", b"<|tool|>", b"<|im|>", b'=a>{"x": 1'),
    frozenset({EOS}),
    frozenset({EOS, SPECIAL, OTHER}),
)
COMPILER = ConstraintCompiler(VOCABULARY, lambda text: list(text.encode()))

INTEGER = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
STRING = {"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}


def tag(begin: str, schema: Any = INTEGER, end: str = "</f>") -> Tag:
    return Tag(begin=begin, schema=json.dumps(schema), end=end)


A, B = tag("<f=a>"), tag("<f=b>", STRING)


def held(*tags: Tag, triggers: tuple[str, ...] = ("<f=",), **options: Any) -> StructuralTag:
    return StructuralTag(tags=tags, triggers=triggers, **options)


def tokens_of(text: str | list[int]) -> list[int]:
    return list(text.encode()) if isinstance(text, str) else text


def mask(matcher: Matcher) -> set[int]:
    row = np.full((VOCABULARY.size + 31) // 32, -1, np.int32)
    matcher.fill(row)
    return {int(t) for t in np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))}


def written(constraint: StructuralTag, *texts: str | list[int]) -> Matcher:
    """A matcher after tokens each of which must be allowed; and at each a completion is tried."""
    matcher = COMPILER.compile(constraint).matcher()
    for token in [token for text in texts for token in tokens_of(text)]:
        assert token in mask(matcher), (token, texts)
        assert matcher.advance(token, 10_000) == "ok"
        closes(matcher)
    return matcher


def closes(matcher: Matcher) -> None:
    fork = matcher.fork()
    tokens = matcher.completion()
    assert tokens
    assert tokens[-1] == EOS
    for n, token in enumerate(tokens):
        assert token in mask(fork)
        assert fork.advance(token, len(tokens) - n - 1) == "ok"


def taken(constraint: StructuralTag, *texts: str | list[int]) -> bool:
    matcher = COMPILER.compile(constraint).matcher()
    for token in [token for text in texts for token in tokens_of(text)]:
        if token not in mask(matcher):
            return False
        matcher.consume([token])
    return EOS in mask(matcher) and matcher.can_stop


FREE = held(A, B)
CALL_A, CALL_B = '<f=a>{"x": 1}</f>', '<f=b>{"s": "</f>"}</f>'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just text, é and 是",
        "a < b, <f, <f <",
        CALL_A,
        f"well: {CALL_A}",
        f"{CALL_A}{CALL_B} then {CALL_A}\n",
        f"<<f<{CALL_A}",
    ],
)
def test_free_text_with_tags(text: str) -> None:
    assert taken(FREE, text)
    written(FREE, text)


@pytest.mark.parametrize("text", ["<f=c>", "x <f= ", '<f=a>{"x": "1"}</f>', '<f=a>{"x":1}</f>'])
def test_after_a_trigger_only_tags(text: str) -> None:
    assert not taken(FREE, text)


def test_arguments_are_held_token_by_token() -> None:
    matcher = written(FREE, 'go <f=a>{"x": ')
    assert mask(matcher) == {*b"-0123456789"}
    assert WIDE in mask(written(FREE, "<f"))
    inner = written(FREE, "<f", [WIDE])
    assert mask(inner) == {*b"0123456789},.eE"} & mask(inner) | {ord("}")}
    assert not inner.can_stop
    assert mask(written(FREE, '<f=a>{"x": 1}</f')) == {ord(">")}


def test_half_a_character_ends_whole() -> None:
    """C026."""
    written(FREE, [0xE6, 0x98])


def test_control_tokens() -> None:
    """C023: a control token's name is that token, and its spelling is text."""
    constraint = held(tag("<|tool|>a:"), triggers=("<|tool|>",))
    assert taken(constraint, "text <|tool|> text")
    assert taken(constraint, "text", [SPECIAL], 'a:{"x": 1}</f>', [SPECIAL], 'a:{"x": 2}</f>.')
    assert not taken(constraint, [OTHER])
    assert not taken(constraint, [SPECIAL], "b")
    assert mask(written(constraint, "<|tool|>", [SPECIAL])) == {ord("a")}
    assert mask(written(constraint, [SPECIAL], 'a:{"x": 1}</f')) == {ord(">")}
    assert SPECIAL not in mask(written(constraint, [SPECIAL], "a:{"))


def test_a_control_token_at_the_end_of_a_tag() -> None:
    constraint = held(tag("<f=a>", end="<|im|>"))
    matcher = written(constraint, '<f=a>{"x": 1}')
    assert mask(matcher) == {OTHER}
    assert taken(constraint, '<f=a>{"x": 1}', [OTHER], "and on")
    assert not taken(constraint, '<f=a>{"x": 1}', "<|im|>")


def test_text_before_a_control_token_of_a_trigger() -> None:
    constraint = held(tag("\n<|tool|>a"), triggers=("\n<|tool|>",))
    assert SPECIAL not in mask(written(constraint, "x"))
    written(constraint, "x\n", [SPECIAL], 'a{"x": 3}</f>', "y\n", [SPECIAL])


def test_no_call_may_be_made() -> None:
    nothing = held(triggers=("<f=", "<|tool|>"))
    assert taken(nothing, "text <f and <|tool|>")
    assert not taken(nothing, "<f=")
    assert not taken(nothing, [SPECIAL])


def test_at_least_one() -> None:
    constraint = held(A, B, at_least_one=True)
    matcher = written(constraint, "text")
    assert EOS not in mask(matcher)
    assert bytes(matcher.completion()[:-1]) == b'<f=a>{"x": 0}</f>'
    assert taken(constraint, f"text {CALL_B}", "more")


def test_stop_after_first() -> None:
    """C025: nothing but the end token follows."""
    constraint = held(A, B, stop_after_first=True)
    assert taken(constraint, "text")
    matcher = written(constraint, f"x{CALL_A}")
    assert mask(matcher) == {EOS}
    assert matcher.is_complete


def test_runs_without_free_text() -> None:
    constraint = held(
        *(tag('{"n": "a", "v": ', end="}"), tag('{"n": "b", "v": ', STRING, "}")),
        triggers=(),
        free_text=False,
        at_least_one=True,
        prefix="[",
        separator=", ",
        suffix="]",
    )
    one, two = '{"n": "a", "v": {"x": 1}}', '{"n": "b", "v": {"s": ""}}'
    assert taken(constraint, f"[{one}]")
    assert taken(constraint, f"[{one}, {two}, {one}]")
    assert not taken(constraint, "")
    assert not taken(constraint, f"[{one}{two}]")
    assert not taken(constraint, "[]")
    assert mask(written(constraint, f"[{one}, {two}]")) == {EOS}
    written(constraint, f"[{one}, ")


def test_nothing_at_all_may_be_enough() -> None:
    constraint = held(A, triggers=(), free_text=False)
    assert taken(constraint, "")
    assert not taken(constraint, "x")
    assert taken(constraint, CALL_A)


def test_a_run_in_free_text() -> None:
    constraint = held(
        *(tag("a", end=""), tag("b", STRING, "")),
        triggers=("[CALLS]",),
        prefix="[CALLS][",
        separator=", ",
        suffix="]",
    )
    run = '[CALLS][a{"x": 1}, b{"s": ""}]'
    assert taken(constraint, f"text{run} text {run}")
    assert not taken(constraint, "[CALLS][]")
    assert not taken(constraint, '[CALLS][a{"x": 1}a{"x": 1}]')
    assert EOS not in mask(written(constraint, 'text[CALLS][a{"x": 1}'))


def test_a_separator_that_free_text_could_go_on_with() -> None:
    constraint = held(tag("a", end=""), triggers=("[CALLS]",), prefix="[CALLS]", separator=";")
    matcher = written(constraint, '[CALLS]a{"x": 1};a')
    assert mask(matcher) == {ord("{")}
    assert taken(constraint, '[CALLS]a{"x": 1}; and')
    assert taken(constraint, '[CALLS]a{"x": 1};a{"x": 2}')


def test_what_no_grammar_can_say_is_vetoed() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    matcher = written(held(tag("<f=a>", schema)), "<f=a>[1, ")
    assert matcher.advance(ord("1"), 1000) == "ok"
    assert matcher.advance(ord("]"), 1000) == "veto"
    assert matcher.advance(ord("2"), 1000) == "ok"


def test_the_budget_closes_calls() -> None:
    """A call's marker is not completed once there is no room for the call."""
    matcher = COMPILER.compile(FREE).matcher()
    matcher.consume(b"text <f")
    least = len('a>{"x": 0}</f>') + 1
    assert matcher.advance(ord("="), least - 1) == "veto"
    assert matcher.advance(ord("!"), 0) == "ok"  # text may be cut
    matcher.rollback(1)
    assert matcher.advance(ord("="), least) == "ok"
    assert matcher.advance(ord("a"), least - 2) == "budget"


def test_a_number_as_the_whole_json() -> None:
    constraint = held(tag("<f=a>", {"type": "integer"}))
    assert taken(constraint, "<f=a>12</f>")
    written(constraint, "<f=a>-", "12</f>x")


@pytest.mark.parametrize(
    ("constraint", "pointer", "keyword"),
    [
        (held(A, tag("<f=b>", {"type": "strin"})), "/tags/1/schema", "type"),
        (
            held(tag("<f=b>", {"properties": {"a": {"minLength": -1}}})),
            "/tags/0/schema/properties/a",
            "minLength",
        ),
        (held(A, tag("<g>")), "/tags/1", "begin"),
        (held(tag("<f=<eos>")), "/tags/0", "begin"),
        (held(A, triggers=("",)), "", "triggers"),
        (held(at_least_one=True), "", "at_least_one"),
        (held(free_text=False), "", "tags"),
        (held(Tag(begin="<f=", schema="{", end="")), "/tags/0/schema", ""),
    ],
)
def test_refused_with_its_place(constraint: StructuralTag, pointer: str, keyword: str) -> None:
    """C001."""
    with pytest.raises(Refusal) as caught:
        COMPILER.compile(constraint)
    assert (caught.value.pointer, caught.value.keyword) == (pointer, keyword)


def test_lenient_names_what_is_dropped() -> None:
    schema = {"type": "string", "extends": {}}
    compiled = COMPILER.compile(held(A, tag("<f=b>", schema), lenient=True))
    assert [(w.pointer, w.keyword) for w in compiled.warnings] == [("/tags/1/schema", "extends")]


def test_literals_of_all_characters() -> None:
    text = 'q"\\/\n\t\x7f\u2028é<[3]>{}'
    constraint = held(tag(text, end=text), triggers=(text,))
    assert taken(constraint, text, '{"x": 1}', text)


def test_rollback_and_forks() -> None:
    matcher = written(FREE, "a <f=a")
    fork = matcher.fork()
    matcher.rollback(3)
    assert EOS in mask(matcher)
    assert mask(fork) == {ord(">")}
