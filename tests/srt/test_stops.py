"""Stop strings over bytes: where the first one ends, and what may become one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sapwood.srt.params import MAX_STOP_BYTES, MAX_STOPS
from sapwood.srt.stops import Match, StopMatcher, TokenText

STOPS = ("END_OF", "\n\nUser:")
LETTERS = st.text("ab\u00e9", min_size=1, max_size=4)


def plain_match(stops: tuple[str, ...], data: bytes) -> Match | None:
    """The match with the earliest end, and of those the longest: by trying all places."""
    for end in range(1, len(data) + 1):
        ending = [stop for stop in stops if data[:end].endswith(stop.encode())]
        if ending:
            stop = max(ending, key=lambda each: len(each.encode()))
            return Match(stop, end - len(stop.encode()), end)
    return None


def plain_held(stops: tuple[str, ...], data: bytes) -> int:
    starts = {stop.encode()[:n] for stop in stops for n in range(len(stop.encode()) + 1)}
    return max(len(start) for start in starts if data.endswith(start))


@given(
    st.lists(LETTERS, min_size=1, max_size=4).map(tuple),
    st.lists(st.text("ab\u00e9", max_size=4).map(str.encode), max_size=8),
)
@example(("abab", "ba"), [b"aab", b"a"])
def test_agrees_with_trying_all_places(stops: tuple[str, ...], pieces: list[bytes]) -> None:
    """C037: whatever the pieces, the first match is that of the whole text."""
    matcher = StopMatcher(stops)
    fed = b""
    for piece in pieces:
        fed += piece
        match = matcher.feed(piece)
        assert match == plain_match(stops, fed)
        assert matcher.held() == plain_held(stops, fed)
        if match is not None:
            break


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        (["abEND_", "OF zz"], Match("END_OF", 2, 8)),
        (["line\n", "next"], None),
        (["x\n\nUs", "age"], None),
        (["fooEND_OFbar"], Match("END_OF", 3, 9)),
        (["a\n", "\n\nUser", ": b"], Match("\n\nUser:", 2, 9)),
        (["END_", "END_OF"], Match("END_OF", 4, 10)),
    ],
)
def test_stop_over_several_tokens(pieces: list[str], found: Match | None) -> None:
    """C037"""
    matcher = StopMatcher(STOPS)
    matches = [match for piece in pieces if (match := matcher.feed(piece.encode()))]
    assert matches == ([] if found is None else [found])


def test_stop_inside_a_character_that_two_tokens_share() -> None:
    """C037: half a character is no match, and the other half completes it."""
    raw = "今天".encode()
    for cut in range(1, len(raw)):
        matcher = StopMatcher(("今天",))
        assert matcher.feed(b"x" + raw[:cut]) is None
        assert matcher.held() == cut
        assert matcher.feed(raw[cut:] + b"y") == Match("今天", 1, 1 + len(raw))


def test_goes_on_after_a_match_that_was_not_to_stop() -> None:
    matcher = StopMatcher(("ab",))
    assert matcher.feed(b"ab") == Match("ab", 0, 2)
    assert matcher.feed(b"xa") is None
    assert matcher.feed(b"bc") == Match("ab", 3, 5)


def test_first_match_in_a_token_counts() -> None:
    assert StopMatcher(("b", "a")).feed(b"xab") == Match("a", 1, 2)


def test_most_and_longest_stops() -> None:
    """C039: as many and as long as a request may have, with nothing but near misses before."""
    stops = tuple(f"{'ab' * (MAX_STOP_BYTES // 2 - 2)}{number:02}" for number in range(MAX_STOPS))
    matcher = StopMatcher(stops)
    near = stops[-1].encode()[:-1]
    for byte in itertools.chain(near, b"x", near):
        assert matcher.feed(bytes([byte])) is None
    assert matcher.held() == len(near)
    match = matcher.feed(b"1")
    assert match is not None
    assert match.stop == stops[-1]


def test_stop_with_a_lone_surrogate_is_no_error() -> None:
    """C039: it can only match the bytes that it would be written as."""
    assert StopMatcher(("\ud800",)).feed(b"abc") is None


def test_two_samples_do_not_disturb_each_other() -> None:
    first, second = StopMatcher(STOPS), StopMatcher(STOPS)
    first.feed(b"END_")
    assert second.held() == 0
    assert second.feed(b"OF") is None
    assert first.feed(b"OF") == Match("END_OF", 0, 6)


def test_special_tokens_are_text_only_where_asked_for() -> None:
    """C037: detecting and cutting go by the same bytes."""
    text = TokenText([b"a", b"<s>", None], {1, 7})
    assert [text.of(token) for token in range(4)] == [b"a", b"", b"", b""]
    assert [text.of(token, skip_special=False) for token in range(3)] == [b"a", b"<s>", b""]
