"""Text from tokens: whole characters, stop strings held back and cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.srt.detokenizer import Detokenizer
from sapwood.srt.messages import (
    ControlReply,
    Deltas,
    Finish,
    Opened,
    Refused,
    StepStats,
    TokenItem,
    Tokens,
)

TEXT = "今天🌶️é👩‍👩‍👧 ok"
BYTES = [bytes([value]) for value in range(256)]
"""A vocabulary of single bytes: every character beyond ASCII is several tokens."""


def byte_level(text: str) -> tuple[list[bytes], list[int]]:
    """As byte-level BPE might cut it: two or three bytes a token, across characters."""
    raw = text.encode()
    cuts = list(itertools.accumulate(itertools.islice(itertools.cycle((2, 3)), len(raw))))
    bounds = [0, *[cut for cut in cuts if cut < len(raw)], len(raw)]
    pieces = [raw[a:b] for a, b in itertools.pairwise(bounds)]
    return pieces, list(range(len(pieces)))


def byte_fallback(text: str) -> tuple[list[bytes], list[int]]:
    """As SentencePiece does: known characters whole, others as one token a byte."""
    known = [b" ", b"o", b"k", "é".encode()]
    table = [*BYTES, *known]
    ids: list[int] = []
    for char in text:
        raw = char.encode()
        ids += [256 + known.index(raw)] if raw in known else list(raw)
    return table, ids


def chunks(ids: Sequence[int], interval: int) -> Iterable[tuple[int, list[int]]]:
    for start in range(0, len(ids), interval):
        yield start, list(ids[start : start + interval])


def texts(
    detokenizer: Detokenizer,
    ids: Sequence[int],
    finish: Finish,
    interval: int = 1,
    opened: Opened | None = None,
) -> list[str]:
    """The text of each delta of one sample, ``interval`` tokens a message, the last with finish."""
    detokenizer.feed(opened or Opened(rid="r", choice=0, epoch=0))
    found = []
    for start, part in chunks(ids, interval):
        last = start + len(part) == len(ids)
        item = TokenItem("r", 0, 0, start, part, 0, finish=finish if last else None)
        reply = detokenizer.feed(Tokens([item], StepStats()))
        assert isinstance(reply, Deltas)
        delta = reply.items[0]
        assert (delta.ids, delta.index, delta.finish) == (part, start, item.finish)
        found.append(delta.text)
    assert len(detokenizer) == 0
    return found


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("cut_into", [byte_level, byte_fallback])
def test_joined_deltas_are_the_text(cut_into, interval) -> None:
    """C035: no half characters, whatever the tokenizer and the interval."""
    table, ids = cut_into(TEXT)
    found = texts(Detokenizer(table), ids, Finish("length"), interval)
    assert "".join(found) == TEXT
    assert not any("\ufffd" in text for text in found)


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("cut_into", [byte_level, byte_fallback])
def test_cut_inside_an_emoji_gives_one_replacement_character(cut_into, interval) -> None:
    """C035: bytes that stay incomplete show once, with the finish, in both modes."""
    table, ids = cut_into("ok 🌶")
    raw = b"".join(table[token] for token in ids)
    while b"".join(table[token] for token in ids) == raw:  # max_tokens ends inside the emoji
        ids = ids[:-1]
    found = texts(Detokenizer(table), ids, Finish("length"), interval)
    assert "".join(found) == "ok \ufffd"
    assert "\ufffd" in found[-1]
    assert texts(Detokenizer(table), ids, Finish("length"), len(ids)) == ["ok \ufffd"]


@given(st.lists(st.binary(max_size=6), max_size=12), st.integers(1, 4))
def test_any_bytes_read_like_the_whole(pieces: list[bytes], interval: int) -> None:
    """C035: for arbitrary bytes the stream's text is that of all bytes at once."""
    table = [*pieces, b"."]
    found = texts(Detokenizer(table), range(len(table)), Finish("length"), interval)
    assert "".join(found) == b"".join(table).decode("utf-8", "replace")


STOPS = ("END_OF", "\n\nUser:")


def stopped(pieces: list[str], matched: str | None, include: bool, stream: bool) -> list[str]:
    """Deltas of a sample that the worker ends at ``matched``, or for its length."""
    table = [piece.encode() for piece in pieces]
    finish = Finish("length") if matched is None else Finish("stop", matched)
    opened = Opened(rid="r", choice=0, epoch=0, stop=STOPS, include_stop=include)
    interval = 1 if stream else len(pieces)
    return texts(Detokenizer(table), range(len(pieces)), finish, interval, opened)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize(
    ("pieces", "matched", "shown"),
    [
        (["abEND_", "OF zz"], "END_OF", "ab"),
        (["line\n", "next"], None, "line\nnext"),
        (["x\n\nUs", "age"], None, "x\n\nUsage"),
        (["fooEND_OFbar"], "END_OF", "foo"),
        (["a\n", "\n", "\nUser", ":", " b"], None, "a\n\n\nUser: b"),
        (["a\n", "\n\nUser", ": b"], "\n\nUser:", "a\n"),
        (["END_", "END_OF"], "END_OF", "END_"),
    ],
)
def test_stop_over_several_chunks(pieces, matched, shown, include, stream) -> None:
    """C037: nothing of a match is sent, near misses are released in full and in order."""
    found = stopped(pieces, matched, include, stream)
    wanted = shown + (matched if matched and include else "")
    assert "".join(found) == wanted
    if matched and not include:
        assert all(wanted.startswith("".join(found[:i])) for i in range(len(found)))


def test_near_miss_is_held_no_longer_than_it_may_match() -> None:
    """C037: what can no longer be a stop is shown with the token that says so."""
    assert stopped(["ab", "EN", "D_", "x", "y"], None, False, True) == ["ab", "", "", "END_x", "y"]


def test_stop_before_min_tokens_stays_text() -> None:
    """C037: where the worker did not stop, the text of a stop string is only text."""
    found = stopped(["END_OF", " a END_", "OF."], "END_OF", False, True)
    assert "".join(found) == "END_OF a "


def test_held_text_comes_with_the_end() -> None:
    """C037: what might have become a stop is shown when the sample ends for another reason."""
    for finish in (Finish("length"), Finish("abort"), Finish("error", None, "x"), Finish("stop")):
        opened = Opened(rid="r", choice=0, epoch=0, stop=STOPS)
        found = texts(Detokenizer([b"ab", b"END_"]), [0, 1], finish, 1, opened)
        assert found == ["ab", "END_"]


@pytest.mark.parametrize(
    ("include", "skip", "shown"),
    [(False, True, "a"), (False, False, "a"), (True, True, "a"), (True, False, "a<eos>")],
)
def test_stop_token_is_no_text(include: bool, skip: bool, shown: str) -> None:
    opened = Opened(rid="r", choice=0, epoch=0, include_stop=include, skip_special_tokens=skip)
    found = texts(Detokenizer([b"a", b"<eos>"], {1}), [0, 1], Finish("stop", 1), 1, opened)
    assert "".join(found) == shown


def test_special_tokens_show_only_where_asked_for() -> None:
    detokenizer = Detokenizer([b"a", b"<s>", None], {1})
    assert texts(detokenizer, [1, 0, 2, 9], Finish("length"), 4) == ["a"]
    opened = Opened(rid="r", choice=0, epoch=0, skip_special_tokens=False)
    assert texts(detokenizer, [1, 0], Finish("length"), 2, opened) == ["<s>a"]


@pytest.mark.parametrize("delivered", range(4))
@pytest.mark.parametrize("held", [False, True])
def test_goes_on_where_an_earlier_run_was_cut(delivered: int, held: bool) -> None:
    """A sample that is submitted again with its tokens shows what the client does not have."""
    table, ids = byte_fallback("é🌶ok END")
    split = 7
    opened = Opened(
        rid="r",
        choice=0,
        epoch=1,
        stop=("ok EX",) if held else (),
        output_ids=ids[:split],
        delivered=min(delivered, 2),
    )
    detokenizer = Detokenizer(table)
    detokenizer.feed(opened)
    item = TokenItem("r", 0, 1, split, ids[split:], 0, finish=Finish("length"))
    reply = detokenizer.feed(Tokens([item], StepStats()))
    assert isinstance(reply, Deltas)
    assert reply.items[0].text == "é🌶ok END"[min(delivered, 2) :]


def test_items_of_an_old_epoch_are_dropped() -> None:
    detokenizer = Detokenizer(BYTES)
    detokenizer.feed(Opened(rid="r", choice=0, epoch=2))
    old = TokenItem("r", 0, 1, 0, [65], 0, finish=Finish("length"))
    new = TokenItem("r", 0, 2, 0, [66], 0)
    reply = detokenizer.feed(Tokens([old, new], StepStats()))
    assert isinstance(reply, Deltas)
    assert [item.text for item in reply.items] == ["B"]
    assert len(detokenizer) == 1


def test_state_goes_with_finish_refusal_and_abort() -> None:
    detokenizer = Detokenizer(BYTES)
    for rid in ("finish", "refused", "abort"):
        detokenizer.feed(Opened(rid=rid, choice=0, epoch=0))
    refused = Refused(rid="refused", choice=0, epoch=0, message="no")
    assert detokenizer.feed(refused) is refused
    items = [
        TokenItem("finish", 0, 0, 0, [65], 0, finish=Finish("length")),
        TokenItem("abort", 0, 0, 0, [], 0, finish=Finish("abort")),
        TokenItem("unopened", 0, 0, 0, [], 0, finish=Finish("abort")),
    ]
    reply = detokenizer.feed(Tokens(items, StepStats(steps=3)))
    assert isinstance(reply, Deltas)
    assert [item.rid for item in reply.items] == ["finish", "abort", "unopened"]
    assert reply.stats.steps == 3
    assert len(detokenizer) == 0


def test_replies_pass_through() -> None:
    reply = ControlReply(1, True, {"a": 1})
    assert Detokenizer(BYTES).feed(reply) is reply
