"""The core: messages in, steps, messages out."""

from __future__ import annotations

import pytest

from sapwood.srt.batch import Batch
from sapwood.srt.core import Core
from sapwood.srt.messages import (
    Abort,
    Control,
    ControlReply,
    Finish,
    Opened,
    Refused,
    Submit,
    TokenItem,
    Tokens,
)
from sapwood.srt.params import SamplingParams
from tests.fakes.stand import Stand

LONG = {"max_tokens": 50, "ignore_eos": True}


def submission(rid: str = "r", **params: object) -> Submit:
    return Submit(
        rid=rid,
        choice=0,
        prompt_ids=[1, 2, 3],
        params=SamplingParams(**{**LONG, **params}),  # type: ignore[arg-type]
        seed=1,
    )


def test_opened_comes_before_the_first_tokens_and_one_tokens_message_a_step() -> None:
    core = Stand().core
    core.handle(submission("a", stop=("x",), include_stop=True, max_tokens=2))
    core.handle(submission("b", max_tokens=2))
    assert core.busy
    first, second = core.step(), core.step()
    assert [type(message) for message in first] == [Opened, Opened, Tokens]
    assert first[0] == Opened(rid="a", choice=0, epoch=0, stop=("x",), include_stop=True)
    assert [type(message) for message in second] == [Tokens]
    assert not core.busy
    assert core.step() == []


def test_a_step_without_news_tells_its_figures() -> None:
    """A prompt in several chunks: metrics move on all the same."""
    core = Stand(max_batched_tokens=2).core
    core.handle(submission())
    messages = core.step()
    assert isinstance(messages[0], Opened)
    assert isinstance(messages[1], Tokens)
    assert messages[1].items == []
    assert messages[1].stats.computed_prompt_tokens == 2


def test_times() -> None:
    """Each look at the clock is a second: arrival, start of the step, its end."""
    core = Stand().core
    core.handle(submission("a"))  # at 1
    core.handle(submission("b"))  # at 2
    stats = [message.stats for message in core.step() if isinstance(message, Tokens)]  # 3 to 4
    assert stats[0].queue_seconds == [2.0, 1.0]
    assert stats[0].step_seconds == 1.0
    stats = [message.stats for message in core.step() if isinstance(message, Tokens)]
    assert stats[0].queue_seconds == []
    assert stats[0].steps == 2


def test_refusal_is_told_though_nothing_runs() -> None:
    core = Stand(context=10).core
    core.handle(
        Submit(rid="r", choice=1, epoch=2, prompt_ids=[1] * 20, params=SamplingParams(), seed=1)
    )
    assert core.busy
    (refused,) = core.step()
    assert isinstance(refused, Refused)
    assert (refused.rid, refused.choice, refused.epoch, refused.status) == ("r", 1, 2, 400)
    assert not core.busy


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_abort_frees_pages_before_the_next_step(steps: int) -> None:
    """C057: waiting, in the middle of the prompt, while decoding."""
    stand = Stand(max_batched_tokens=2)
    stand.core.handle(submission())
    for _ in range(steps):
        stand.core.step()
    stand.core.handle(Abort("r"))
    assert stand.cache.n_used == 0
    (message,) = stand.core.step()
    assert isinstance(message, Tokens)
    assert [item.finish for item in message.items] == [Finish("abort")]
    assert (message.stats.running, message.stats.waiting) == (0, 0)
    assert not stand.core.busy


def test_abort_ends_all_choices_and_nobody_else() -> None:
    stand = Stand()
    stand.submit("r", [1, 2], choices=3, **LONG)
    stand.submit("r2", [1, 2], **LONG)
    stand.step()
    stand.abort("r")
    stand.abort("unknown")
    stand.abort("")
    stand.run()
    reasons = {key: result.finish and result.finish.reason for key, result in stand.results.items()}
    assert reasons == {
        ("r", 0): "abort",
        ("r", 1): "abort",
        ("r", 2): "abort",
        ("r2", 0): "length",
    }


def test_an_abort_while_a_step_is_out_keeps_its_pages_until_it_is_done() -> None:
    """Pages that a step in flight names must not go to anybody else."""
    stand = Stand(pages=32, page_size=4)
    scheduler, runner = stand.scheduler, stand.runner
    scheduler.submit(submission("a"))
    scheduler.submit(submission("b"))
    batch = scheduler.next_batch()
    assert batch is not None
    scheduler.abort("a")
    scheduler.audit()
    assert stand.cache.n_used == 2
    slots = {row.request.slot for row in batch.rows}
    assert len(slots) == 2
    scheduler.submit(submission("a2"))
    events = scheduler.commit(batch, runner.sample(batch, runner.forward(batch)))
    scheduler.audit()
    items = [(item.rid, item.finish) for item in events.items]
    assert items == [("a", Finish("abort")), ("b", None)]
    assert stand.cache.n_used == 1


@pytest.mark.parametrize("prepare", ["prefill", "decode", "wait"])
def test_flush_while_busy_changes_nothing(prepare: str) -> None:
    """C056: refused, with a reason."""
    stand = Stand(max_batched_tokens=4 if prepare == "prefill" else 64, max_running=1)
    whole = Stand().generate("r", [5] * 20, **LONG)
    stand.generate("warm-up", [7] * 20, max_tokens=1)
    stand.submit("r", [5] * 20, **LONG)
    stand.submit("s", [6] * 20, **LONG)
    if prepare != "wait":
        stand.step()
    before = stand.cache.n_evictable
    stand.core.handle(Control(3, "flush_cache"))
    assert stand.cache.n_evictable == before
    stand.step()
    reply = stand.replies[-1]
    assert (reply.id, reply.ok) == (3, False)
    assert "run" in reply.detail["message"]
    stand.run()
    assert stand.results["r", 0].ids == whole.ids
    assert stand.generate("again", [7] * 20, max_tokens=1).cached == 19


def test_flush_between_a_step_and_its_commit_changes_nothing() -> None:
    """C056: with a batch out and its only row aborted meanwhile, nothing runs, but a step does."""
    stand = Stand()
    stand.generate("warm-up", [7] * 20, max_tokens=1)
    stand.submit("r", [5] * 20, **LONG)
    scheduler = stand.core._scheduler
    batch = scheduler.next_batch()
    assert batch is not None
    scheduler.abort("r")
    before = stand.cache.n_evictable
    assert not scheduler.flush()
    assert stand.cache.n_evictable == before
    stand.runner.forward(batch)
    scheduler.commit(batch, stand.runner.sample(batch, None))
    assert scheduler.flush()
    assert stand.cache.n_free == stand.cache.n_total


def test_flush_while_idle_empties_the_tree() -> None:
    """C056"""
    stand = Stand()
    stand.generate("r", [5] * 20, **LONG)
    assert stand.cache.n_evictable > 0
    assert stand.control("flush_cache") == ControlReply(0, True, {})
    assert stand.cache.n_free == stand.cache.n_total
    assert stand.generate("again", [5] * 20, max_tokens=1).cached == 0


def test_info() -> None:
    stand = Stand(pages=100)
    stand.generate("r", [5] * 20, max_tokens=3, ignore_eos=True)
    reply = stand.control("info")
    assert reply.ok
    assert reply.detail["pages_total"] == 100
    assert reply.detail["output_tokens"] == 3


class Broken:
    """A runner whose device is gone."""

    def forward(self, batch: Batch) -> None:
        raise RuntimeError("the device is gone")

    def sample(self, batch: Batch, logits: None, masks: None = None) -> None:
        raise AssertionError


def test_an_exception_of_the_runner_is_not_swallowed() -> None:
    core = Core(Stand().scheduler, Broken())  # type: ignore[arg-type]
    core.handle(submission())
    with pytest.raises(RuntimeError, match="the device is gone"):
        core.step()


def test_nothing_is_kept_of_what_has_ended() -> None:
    stand = Stand(context=100, max_waiting=4)
    for number in range(30):
        stand.submit(f"r{number}", [number + 1] * (90 + number), max_tokens=2, ignore_eos=True)
        if number % 3 == 0:
            stand.abort(f"r{number}")
        if number % 4 == 0:
            stand.step()
    stand.run()
    assert stand.core._arrived == {}
    assert stand.scheduler._alive == {}


def test_items_carry_the_cached_count() -> None:
    core = Stand().core
    core.handle(submission("a", max_tokens=1))
    core.step()
    core.handle(submission("b", max_tokens=1))
    tokens = next(message for message in core.step() if isinstance(message, Tokens))
    assert [item.cached for item in tokens.items if isinstance(item, TokenItem)] == [2]
