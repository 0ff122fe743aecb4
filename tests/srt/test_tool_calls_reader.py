"""Calls read out of text, however it is cut."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.srt.tool_calls import ArgumentsPiece, CallReader, CallStart, ContentPiece, Event
from sapwood.srt.tool_calls.hermes import LAYOUT as HERMES
from sapwood.srt.tool_calls.layout import Layout
from sapwood.srt.tool_calls.llama3 import LAYOUT as LLAMA3
from sapwood.srt.tool_calls.mistral import Mistral

MISTRAL = Mistral().layout
LAYOUTS = {"hermes": HERMES, "llama3": LLAMA3, "mistral": MISTRAL}
NAMES = ["get", "get_all", "f"]
Calls = list[tuple[str, str]]


def read(layout: Layout, pieces: Iterable[str], *, forced: bool = False) -> list[Event]:
    reader = CallReader(layout, NAMES, forced=forced)
    events: list[Event] = []
    for piece in pieces:
        events += reader.feed(piece)
    return [*events, *reader.end()]


def whole(events: list[Event]) -> tuple[str, Calls]:
    """What a client puts together: content, and calls."""
    content, calls = "", []
    for event in events:
        if isinstance(event, ContentPiece):
            content += event.text
        elif isinstance(event, CallStart):
            assert event.call == len(calls)
            calls.append((event.name, ""))
        else:
            name, text = calls[event.call]
            calls[event.call] = (name, text + event.text)
            assert event.call == len(calls) - 1
    return content, calls


def cuts(text: str) -> Iterable[list[str]]:
    """One character a piece, the whole, and every way to make two pieces."""
    yield list(text)
    yield [text]
    yield from ([text[:at], text[at:]] for at in range(len(text) + 1))


def call(name: str, arguments: str) -> str:
    return HERMES.call(name, arguments)


TWO = call("get", '{"a": "}<tool_call>\\""}') + "\n" + call("get", "{}")
CASES = {
    "text alone": ("Just text.\n", ("Just text.\n", [])),
    "a call": (call("f", '{"a": [1, {"b": 2}]}'), ("", [("f", '{"a": [1, {"b": 2}]}')])),
    "two of one tool": (TWO, ("", [("get", '{"a": "}<tool_call>\\""}'), ("get", "{}")])),
    "text around": (f"I look.\n{TWO}\nDone, I think.", None),
    "a longer name": (call("get_all", "{}"), ("", [("get_all", "{}")])),
    "a marker's part": ("a <tool_cal", ("a <tool_cal", [])),
    "almost a marker": ("x <tool_cart> y", ("x <tool_cart> y", [])),
    "a marker and no call": ("x \n<tool_call> hm", ("x \n<tool_call> hm", [])),
    "an unknown tool": (call("g", "{}"), (call("g", "{}"), [])),
    "cut before the name": ('x\n<tool_call>\n{"na', ("x", [])),
    "cut in the arguments": (call("f", '{"a": "b')[:-14], ("", [("f", '{"a": "b')])),
    "blanks alone": (" \n ", (" \n ", [])),
    "blanks after a call": (call("f", "{}") + " \n", ("", [("f", "{}")])),
    "begun twice": ("<<tool_call>" + call("f", "{}"), ("<<tool_call>", [("f", "{}")])),
}


@pytest.mark.parametrize("name", CASES)
def test_c077_every_cut_gives_the_same(name: str) -> None:
    text, expected = CASES[name]
    if expected is None:
        expected = ("I look.Done, I think.", whole(read(HERMES, [TWO]))[1])
    for pieces in cuts(text):
        assert whole(read(HERMES, pieces)) == expected, pieces


ARGUMENTS = st.recursive(
    st.sampled_from(['"x"', "1", "true", '"}"', '"\\\\"', '"\\"]"', '"<tool_call>"', '"[TOOL_C"']),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
    max_leaves=4,
)
OBJECTS = st.lists(ARGUMENTS, max_size=3).map(
    lambda items: "{" + ", ".join(f'"k{i}": {item}' for i, item in enumerate(items)) + "}"
)
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), OBJECTS), max_size=3)
TEXT = st.text("ab <[{\"'\n", max_size=12)


@given(TEXT, CALLS, TEXT, st.sampled_from(sorted(LAYOUTS)), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_c077_random_cuts(before: str, calls: Calls, after: str, name: str, seed: int) -> None:
    layout = LAYOUTS[name]
    run = layout.run(calls) if calls else ""
    text = before + run + after
    pieces, rng = [], random.Random(seed)
    while text:
        size = rng.randint(1, 9)
        pieces.append(text[:size])
        text = text[size:]
    text = before + run + after
    content, read_calls = whole(read(layout, pieces))
    assert (content, read_calls) == whole(read(layout, [text]))
    if not calls:
        assert (content, read_calls) == (text, [])
    elif layout is MISTRAL or name == "hermes":
        assert read_calls == calls
        assert content == before.rstrip() + after.lstrip()


@given(CALLS.filter(bool), st.sampled_from(["hermes", "mistral"]), st.integers(0, 200))
@settings(max_examples=200, deadline=None)
def test_c077_forced_calls_cut_anywhere(calls: Calls, name: str, at: int) -> None:
    """A budget may cut an answer: what came of the arguments is shown, and never a marker."""
    layout = LAYOUTS[name]
    text = layout.run(calls)[:at]
    content, got = whole(read(layout, list(text), forced=True))
    assert (content, got) == whole(read(layout, [text], forced=True))
    assert content == ""
    assert [each for each, _ in got] == [each for each, _ in calls][: len(got)]
    for (_, arguments), (_, expected) in zip(got, calls, strict=False):
        assert expected.startswith(arguments)


@pytest.mark.parametrize("forced", [True, False])
def test_llama3_with_and_without_its_tag(forced: bool) -> None:
    bare = LLAMA3.call("f", '{"a": 1}')
    for text in [bare] if forced else [bare, "<|python_tag|>" + bare]:
        for pieces in cuts(text):
            assert whole(read(LLAMA3, pieces, forced=forced)) == ("", [("f", '{"a": 1}')])


def test_text_is_let_out_as_soon_as_it_is_no_marker() -> None:
    reader = CallReader(HERMES, NAMES)
    assert reader.feed("Hi, <to") == [ContentPiece("Hi,")]
    assert reader.feed("ns> ok") == [ContentPiece(" <tons> ok")]
    assert reader.feed("\n" + '<tool_call>\n{"name": "f", "argu') == []
    assert reader.feed('ments": {"a"') == [CallStart(0, "f"), ArgumentsPiece(0, '{"a"')]
    assert not reader.complete
    assert reader.feed(": 1}") == [ArgumentsPiece(0, ": 1}")]
    assert reader.complete
    assert reader.feed("}\n</tool_call>") == []
    assert reader.end() == []
    assert reader.n_calls == 1


def test_bare_json_is_a_call_only_of_a_known_function() -> None:
    for text in (
        '{"name": "John"}',
        '{"name": "g", "parameters": {}}',
        'So: {"name": "f", "x": 1}',
    ):
        for pieces in cuts(text):
            assert whole(read(LLAMA3, pieces)) == (text, [])
    text = 'So: {"name": "John"} ' + LLAMA3.call("get_all", "{}")
    for pieces in cuts(text):
        assert whole(read(LLAMA3, pieces)) == ('So: {"name": "John"}', [("get_all", "{}")])
