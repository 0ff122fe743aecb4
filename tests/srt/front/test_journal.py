"""The journal, without HTTP and without an event loop."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.srt.errors import RequestError
from sapwood.srt.front.entry import Prepared, Prompt
from sapwood.srt.front.journal import Journal
from sapwood.srt.messages import (
    Abort,
    Control,
    ControlReply,
    Delta,
    Deltas,
    Finish,
    Refused,
    StepStats,
    Submit,
)
from sapwood.srt.params import SamplingParams

STOP = Finish("stop")


class Wire(list):
    """What the worker was sent."""

    def of(self, kind):
        return [message for message in self if isinstance(message, kind)]


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def journal(wire):
    return Journal(wire.append, clock=itertools.count().__next__)


def prepared(*prompts, n=1, names=(), **fields):
    params = SamplingParams(max_tokens=10, n=n)
    made = [
        Prompt(list(ids), params, name)
        for ids, name in itertools.zip_longest(prompts or [b"ab"], names)
    ]
    return Prepared(made, seed=1, **fields)


def delta(call, index, text, finish=None, *, choice=0, epoch=0, entry=0, cached=0):
    return Delta(
        call.entries[entry].rid,
        choice,
        epoch,
        index,
        list(text.encode()),
        text,
        cached,
        finish=finish,
    )


def tell(journal, *items):
    journal.receive(Deltas(list(items), StepStats()))


def test_a_request_from_start_to_end_without_an_event_loop(journal, wire):
    call = journal.open(prepared())
    heard = []
    call.listen(lambda: heard.append(call.choices[0].text))
    (submit,) = wire
    assert isinstance(submit, Submit)
    assert (submit.prompt_ids, submit.choice, submit.seed, submit.epoch) == ([97, 98], 0, 1, 0)
    tell(journal, delta(call, 0, "x", cached=1))
    tell(journal, delta(call, 1, "yz", STOP, cached=2))
    assert heard == ["x", "xyz"]
    assert call.ended
    assert call.error is None
    assert call.choices[0].ids == [*b"xyz"]
    assert call.choices[0].finish is STOP
    assert (call.prompt_tokens, call.completion_tokens, call.cached_tokens) == (2, 3, 1)
    assert len(journal) == 0
    assert not wire.of(Abort)


def test_samples_and_prompts(journal, wire):
    call = journal.open(prepared(b"a", b"b", n=2))
    assert [(s.prompt_ids, s.choice) for s in wire] == [([97], 0), ([97], 1), ([98], 0), ([98], 1)]
    assert len({s.rid for s in wire}) == 2
    tell(journal, delta(call, 0, "x", STOP, choice=1, entry=1))
    assert call.choices[3].text == "x"
    assert not call.ended
    tell(journal, delta(call, 0, "y", STOP, entry=1), delta(call, 0, "z", STOP))
    assert len(journal) == 1
    tell(journal, delta(call, 0, "w", STOP, choice=1))
    assert [choice.text for choice in call.choices] == ["z", "w", "y", "x"]
    assert call.ended


def test_what_comes_twice_or_from_an_old_epoch_is_dropped(journal):
    call = journal.open(prepared())
    call.entries[0].epoch = 1
    tell(journal, delta(call, 0, "old"))
    tell(journal, delta(call, 0, "ab", epoch=1))
    tell(journal, delta(call, 0, "ab", epoch=1), delta(call, 1, "b", epoch=1))
    assert call.choices[0].text == "ab"
    tell(journal, delta(call, 2, "", STOP, epoch=1))
    assert call.ended
    tell(journal, delta(call, 2, "more", epoch=1))
    assert call.choices[0].text == "ab"


def test_an_end_is_never_dropped(journal):
    call = journal.open(prepared())
    tell(journal, delta(call, 0, "ab"))
    tell(journal, delta(call, 1, "b", STOP))
    assert call.ended
    assert call.choices[0].text == "ab"


def test_missing_tokens_are_an_error_and_not_a_wrong_answer(journal, wire):
    call = journal.open(prepared())
    tell(journal, delta(call, 1, "b"))
    assert call.error is not None
    assert call.error.status == 500
    assert wire.of(Abort) == [Abort(call.entries[0].rid)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=30))
def test_any_repetition_gives_the_text_once(pieces):
    journal = Journal(lambda message: None)
    call = journal.open(prepared())
    whole = "abcdefghijklmnopqrstuvwxyz" * 5
    held = 0
    for back, size in pieces:
        start = max(0, held - back)
        end = start + size
        # A run submitted again starts where the front is; so what is new comes as one piece.
        if start < held < end:
            continue
        tell(journal, delta(call, start, whole[start:end]))
        held = max(held, end)
        assert call.choices[0].text == whole[:held]


def test_a_refusal_ends_the_whole_call(journal, wire):
    call = journal.open(prepared(b"a", b"b", n=2))
    refused = Refused(
        rid=call.entries[1].rid, choice=1, epoch=0, message="no", status=503, code="queue_full"
    )
    journal.receive(refused)
    assert call.ended
    assert (call.error.status, call.error.code) == (503, "queue_full")
    assert {abort.rid for abort in wire.of(Abort)} == {entry.rid for entry in call.entries}
    assert len(journal) == 0
    journal.receive(refused)


def test_cancelling_tells_the_worker_once(journal, wire):
    call = journal.open(prepared(n=3))
    journal.cancel(call)
    journal.cancel(call)
    assert call.cancelled
    assert wire.of(Abort) == [Abort(call.entries[0].rid)]
    tell(journal, delta(call, 0, "late"))
    assert call.choices[0].text == ""
    assert len(journal) == 0


def test_cancelling_after_the_end_does_nothing(journal, wire):
    call = journal.open(prepared())
    tell(journal, delta(call, 0, "x", STOP))
    journal.cancel(call)
    assert not call.cancelled
    assert not wire.of(Abort)


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_finishes_that_are_failures(journal, wire, reason):
    call = journal.open(prepared(n=2))
    tell(journal, delta(call, 0, "x", STOP))
    tell(journal, delta(call, 0, "", Finish(reason, None, "why"), choice=1))
    assert call.ended
    assert call.error is not None
    assert call.error.status == (500 if reason == "error" else 400)
    assert len(journal) == 0


def test_c064_names(journal):
    call = journal.open(prepared(names=["r1"]))
    with pytest.raises(RequestError) as error:
        journal.open(prepared(names=["r1"]))
    assert (error.value.status, error.value.param) == (409, "rid")
    journal.open(prepared(names=["r1"], tenant="other"))
    tell(journal, delta(call, 0, "x", STOP))
    assert call.choices[0].text == "x"
    again = journal.open(prepared(names=["r1"]))
    journal.cancel(again)
    journal.open(prepared(names=["r1"]))


def test_c064_a_refused_batch_leaves_nothing_behind(journal, wire):
    journal.open(prepared(names=["b"]))
    sent = len(wire)
    with pytest.raises(RequestError):
        journal.open(prepared(b"1", b"2", names=["a", "b"]))
    assert len(wire) == sent
    assert len(journal) == 1
    journal.open(prepared(names=["a"]))


def test_abort_takes_the_exact_name(journal, wire):
    one = journal.open(prepared(names=["job-1"]), keeps_aborted=True)
    ten = journal.open(prepared(names=["job-10"]), keeps_aborted=True)
    tell(journal, delta(one, 0, "x"))
    assert journal.abort("job") == 0
    assert journal.abort("job-1") == 1
    assert wire.of(Abort) == [Abort(one.entries[0].rid)]
    assert one.ended
    assert one.error is None
    assert one.choices[0].text == "x"
    assert one.choices[0].finish.reason == "abort"
    assert not ten.ended
    assert journal.abort("job-1") == 0


def test_abort_of_a_batch_and_of_one_in_it(journal):
    fields = {"names": ["job_0", "job_1", "job_2"]}
    call = journal.open(
        prepared(b"a", b"b", b"c", **fields)._replace(names=("job",)), keeps_aborted=True
    )
    assert journal.abort("job_1") == 1
    assert not call.ended
    assert journal.abort("job") == 2
    assert call.ended
    assert len(journal) == 0


def test_abort_is_an_error_where_it_is_no_answer(journal):
    call = journal.open(prepared(names=["r"]))
    journal.abort("r")
    assert call.error.code == "request_aborted"
    assert call.choices[0].finish is None


def test_c044_failure_of_the_worker(journal, wire):
    calls = [journal.open(prepared(n=2)) for _ in range(3)]
    done = journal.open(prepared())
    tell(journal, delta(done, 0, "x", STOP))
    replies = []
    journal.ask("flush_cache", replies.append)
    journal.fail_all("the worker is gone")
    journal.fail_all("again")
    assert all(call.error.status == 503 for call in calls)
    assert len({id(call.error) for call in calls}) == 3
    assert done.error is None
    assert [reply.ok for reply in replies] == [False]
    assert len(journal) == 0
    for refuse in (lambda: journal.open(prepared()), lambda: journal.ask("info", replies.append)):
        with pytest.raises(RequestError) as error:
            refuse()
        assert error.value.status == 503
        assert "worker is gone" in error.value.message


def test_orders_are_answered(journal, wire):
    replies = []
    journal.ask("flush_cache", replies.append)
    (control,) = wire.of(Control)
    assert control.op == "flush_cache"
    journal.receive(ControlReply(control.id, True, {"a": 1}))
    journal.receive(ControlReply(control.id, True, {"a": 1}))
    journal.receive(ControlReply(99, True))
    assert [reply.detail for reply in replies] == [{"a": 1}]


def test_a_reader_on_an_event_loop(journal):
    async def go():
        call = journal.open(prepared())
        tell(journal, delta(call, 0, "a"))
        await call.changed()
        waiting = asyncio.ensure_future(call.changed())
        await asyncio.sleep(0)
        assert not waiting.done()
        tell(journal, delta(call, 1, "b"))
        tell(journal, delta(call, 2, "c"))
        await waiting  # once for both
        waiting = asyncio.ensure_future(call.changed())
        await asyncio.sleep(0)
        assert not waiting.done()
        tell(journal, delta(call, 3, "d", STOP))
        await waiting

    asyncio.run(go())


def test_a_reader_of_whole_answers_is_woken_at_the_end(journal):
    call = journal.open(prepared(n=2), every_delta=False)
    heard = []
    call.listen(lambda: heard.append(call.ended))
    tell(journal, delta(call, 0, "a"), delta(call, 0, "b", choice=1))
    tell(journal, delta(call, 1, "a", STOP))
    tell(journal, delta(call, 1, "a", STOP, choice=1))
    assert heard == [True]


def test_one_wake_for_all_news_of_a_step(journal):
    call = journal.open(prepared(n=4))
    heard = []
    call.listen(lambda: heard.append(1))
    tell(journal, *(delta(call, 0, "a", choice=i) for i in range(4)))
    assert len(heard) == 1
