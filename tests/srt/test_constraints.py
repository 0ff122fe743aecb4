"""Compiling beside the steps: once for all, bounded, and harmless where it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sapwood.constrain.refusal import BusyError, Refusal
from sapwood.constrain.spec import Choice, Constraint
from sapwood.constrain.vocabulary import Vocabulary
from sapwood.srt import constraints as module
from sapwood.srt.constraints import Compiling, Constraints
from sapwood.srt.errors import RequestError

VOCABULARY = Vocabulary((b"a", b"b", b"<end>"), frozenset({2}), frozenset({2}))


class Compiler:
    """Compiles as slowly, or as badly, as it is told to."""

    def __init__(self) -> None:
        self.made: list[Constraint] = []
        self.turns = 0
        self.go = threading.Event()
        self.go.set()

    def compile(self, constraint: Choice, deadline: float) -> Any:
        self.made.append(constraint)
        if constraint.options[0] == "slow":
            self.go.wait(10)
        while constraint.options == ("endless",):
            self.turns += 1
        if constraint.options == ("refused",):
            raise Refusal("/x", "enum", "not that")
        if constraint.options == ("late",):
            raise TimeoutError
        if constraint.options == ("busy",):
            raise BusyError
        if constraint.options == ("broken",):
            raise ZeroDivisionError("a fault of the compiler's own")
        return Compiled()


class Compiled:
    engine = "scripted"


def of(*options: str) -> Choice:
    return Choice(options)


def wait(compiling: Compiling) -> Compiling:
    while not compiling.done:
        time.sleep(0.001)
    return compiling


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    made = Compiler()
    yield made
    made.go.set()


def service(compiler: Compiler, **options: Any) -> Constraints:
    made = Constraints(VOCABULARY, lambda text: [], **options)
    made._compiler = compiler  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    ("option", "code", "status"), [("late", "constraint_timeout", 400), ("busy", "queue_full", 503)]
)
def test_what_failed_for_now_is_not_remembered(
    compiler: Compiler, option: str, code: str, status: int
) -> None:
    constraints = service(compiler)
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            wait(constraints.ask(of(option))).result()
        assert (caught.value.code, caught.value.status) == (code, status)
    assert compiler.made == [of(option)] * 2


def test_equal_constraints_compile_once(compiler: Compiler) -> None:
    constraints = service(compiler)
    first = wait(constraints.ask(of("a")))
    assert constraints.ask(of("a")) is first
    assert compiler.made == [of("a")]
    assert constraints.info()["hits"] == 1
    assert constraints.info()["engines"] == {"scripted": 1}


def test_those_that_ask_while_it_compiles_share_the_result(compiler: Compiler) -> None:
    constraints = service(compiler)
    compiler.go.clear()
    first, second = constraints.ask(of("slow")), constraints.ask(of("slow"))
    assert first is second
    assert not first.done
    compiler.go.set()
    assert wait(second).result().engine == "scripted"
    assert len(compiler.made) == 1


def test_c001_a_refusal_and_a_fault_are_errors_of_their_requests(compiler: Compiler) -> None:
    constraints = service(compiler)
    with pytest.raises(RequestError, match="not that") as refused:
        wait(constraints.ask(of("refused"))).result()
    assert (refused.value.status, refused.value.param) == (400, "/x")
    with pytest.raises(RequestError, match="cannot be compiled: ZeroDivisionError"):
        wait(constraints.ask(of("broken"))).result()
    assert constraints.info()["refused"] == 2
    assert wait(constraints.ask(of("a"))).result().engine == "scripted"


def test_one_that_takes_too_long_is_given_up_and_others_go_on(compiler: Compiler) -> None:
    now = [0.0]
    constraints = service(compiler, deadline=5.0, clock=lambda: now[0])
    compiler.go.clear()
    slow = constraints.ask(of("slow"))
    assert not constraints.overdue(slow)
    now[0] = 5.0
    assert constraints.overdue(slow)
    constraints.give_up(of("slow"))
    with pytest.raises(RequestError, match="within 5 seconds"):
        slow.result()
    assert wait(constraints.ask(of("a"))).result().engine == "scripted"


def test_the_work_on_one_that_is_given_up_stops(compiler: Compiler) -> None:
    constraints = service(compiler)
    endless = constraints.ask(of("endless"))
    queued = constraints.ask(of("endless", "queued"))
    while not compiler.turns:
        time.sleep(0.001)
    constraints.give_up(of("endless"))
    with pytest.raises(RequestError, match="not compiled within 10 seconds"):
        wait(endless).result()
    stopped_at = compiler.turns
    assert wait(queued).result().engine == "scripted"
    assert compiler.turns == stopped_at


def test_one_that_is_given_up_before_its_turn_is_not_begun(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "THREADS", 1)
    constraints = service(compiler)
    compiler.go.clear()
    slow, waits = constraints.ask(of("slow")), constraints.ask(of("waits"))
    constraints.give_up(of("waits"))
    compiler.go.set()
    wait(slow)
    with pytest.raises(RequestError, match="not compiled"):
        wait(waits).result()
    assert of("waits") not in compiler.made


def test_the_least_recently_used_is_dropped(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CAPACITY", 2)
    constraints = service(compiler)
    for name in ("a", "b", "a", "c"):
        wait(constraints.ask(of(name)))
    wait(constraints.ask(of("a")))
    assert compiler.made == [of("a"), of("b"), of("c")]
    wait(constraints.ask(of("b")))
    assert compiler.made[-1] == of("b")


def test_only_so_many_wait(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    constraints = service(compiler)
    compiler.go.clear()
    constraints.ask(of("slow"))
    constraints.ask(of("slow", "b"))
    with pytest.raises(RequestError) as full:
        constraints.ask(of("c"))
    assert full.value.status == 503
