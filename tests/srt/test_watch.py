"""When a child counts as dead. C058."""

from __future__ import annotations

from sapwood.srt.processes.lifeline import Pulse
from sapwood.srt.processes.watch import LATE, Watch


def ask(watch: Watch, start: float, stop: float) -> str | None:
    """Asks every half second of ``[start, stop)``; the last verdict."""
    verdict = None
    while start < stop:
        verdict = watch.verdict(start)
        start += 0.5
    return verdict


def test_silence_past_the_limit_is_death() -> None:
    watch = Watch(0.0, silent=5.0, stuck=60.0)
    assert ask(watch, 0.0, 5.0) is None
    watch.beat(4.9, 0.0)
    assert ask(watch, 5.0, 9.9) is None
    verdict = ask(watch, 10.0, 10.5)
    assert verdict is not None
    assert "no sign of life for 5 s" in verdict


def test_work_is_timed_once_the_child_is_ready() -> None:
    watch = Watch(0.0, silent=5.0, stuck=2.0)
    watch.beat(0.5, 30.0)  # loading takes as long as it takes
    assert watch.verdict(0.5) is None
    watch.ready()
    watch.beat(1.0, 1.5)
    assert watch.verdict(1.0) is None
    watch.beat(1.5, 2.1)
    verdict = watch.verdict(1.5)
    assert verdict is not None
    assert "in one step for more than 2 s" in verdict


def test_a_parent_that_was_stopped_itself_starts_anew() -> None:
    watch = Watch(0.0, silent=5.0, stuck=60.0)
    assert ask(watch, 0.0, 3.0) is None
    assert watch.verdict(3.0 + LATE + 100.0) is None
    assert ask(watch, 103.5 + LATE, 107.0 + LATE) is None
    assert ask(watch, 107.0 + LATE, 110.0 + LATE) is not None


def test_pulse() -> None:
    pulse = Pulse()
    assert pulse.stuck() == 0.0
    pulse.begin()
    assert pulse.stuck() >= 0.0
    assert pulse._since is not None
    pulse.end()
    assert pulse.stuck() == 0.0
