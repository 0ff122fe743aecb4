"""The incremental reader of JSON text."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.constrain.json_text import JsonText, Mode, is_double, missing_bytes

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)


@given(VALUES, st.integers(0, 2**32), st.booleans())
def test_pieces_read_like_the_whole(value: object, seed: int, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    whole = JsonText().feed(text)
    rng = random.Random(seed)
    state, at = JsonText(), 0
    while at < len(text):
        size = rng.randint(1, 5)
        state = state.feed(text[at : at + size])
        at += size
    assert state == whole
    assert not state.stack
    assert state.mode in (Mode.AFTER, Mode.NUMBER)


def test_open_places_are_known() -> None:
    state = JsonText().feed(b'{"a": [1, {"b": "x')
    assert [frame.is_object for frame in state.stack] == [True, False, True]
    assert state.stack[0].key == "a"
    assert state.stack[1].spans == ((7, 8),)
    assert state.stack[2].key == "b"
    assert state.mode is Mode.STRING
    assert state.text[state.at :] == b'"x'


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (b"", Mode.VALUE),
        (b"[", Mode.FIRST_ITEM),
        (b"[1,", Mode.VALUE),
        (b"{", Mode.FIRST_KEY),
        (b'{"a', Mode.IN_KEY),
        (b'{"a"', Mode.COLON),
        (b'{"a":', Mode.VALUE),
        (b'{"a": tr', Mode.LITERAL),
        (b'{"a": true', Mode.AFTER),
        (b'{"a": 1,', Mode.KEY),
        (b'{"a": -1', Mode.NUMBER),
    ],
)
def test_modes(text: bytes, mode: Mode) -> None:
    assert JsonText().feed(text).mode is mode


@pytest.mark.parametrize("text", [b"]", b"{1", b'{"a" 1', b"[1 2", b'"a" "b"', b"}"])
def test_what_is_no_json_is_told(text: bytes) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        JsonText().feed(text)


@pytest.mark.parametrize(
    ("text", "escape"), [(b'"\\', -1), (b'"\\u', 4), (b'"\\u00e', 1), (b'"\\n', 0), (b'"\\\\', 0)]
)
def test_escapes(text: bytes, escape: int) -> None:
    assert JsonText().feed(text).escape == escape


@given(st.text(min_size=1, max_size=6))
def test_missing_bytes_finish_a_character(text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    for cut in range(len(data) + 1):
        (data[:cut] + missing_bytes(data[:cut])).decode()


@pytest.mark.parametrize(
    ("number", "held"),
    [
        (b"1", True),
        (b"9" * 400, True),  # a whole number has no bounds
        (b"1e308", True),
        (b"1e309", False),
        (b"1e-400", False),  # would be read as 0
        (b"0e-400", True),
        (b"1e", True),
        (b"1e+", True),
        (b"0.1", True),
        (b"0.99999999999999999999", False),  # would be read as 1
        (b"-1.5E+3", True),
        (b"1.", True),
    ],
)
def test_numbers_that_a_double_holds(number: bytes, held: bool) -> None:
    assert is_double(number) is held
    if not held:
        with pytest.raises(OverflowError):
            JsonText().feed(b"[" + number + b"]")
