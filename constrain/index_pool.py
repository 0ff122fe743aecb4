"""Processes that compile expressions under limits of time and memory."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .automaton import Automaton
from .characters import Ranges, characters, normalised
from .child import Child
from .refusal import Refusal

_REMEMBERED = 4096
_CHILD = Path(__file__).with_name("index_child.py")


@dataclass(frozen=True, kw_only=True)
class IndexLimits:
    """What a compilation may take.

    An automaton over tokens is made where that over bytes has at most ``max_states`` states, and
    at most ``max_edges`` tokens can begin in them, all together.
    """

    seconds: float = 10.0
    memory: int = 1 << 30
    processes: int = 2
    max_states: int = 160
    max_edges: int = 300_000


class Automata(NamedTuple):
    """An expression as an automaton over bytes and, where that is small, over tokens."""

    by_byte: Automaton
    by_token: Automaton | None


class IndexPool:
    """Compiles expressions in processes that are kept for the next. Safe to use from threads.

    ``tokens`` are the ids of each text that a token may have, none with a NUL in it; ``end`` is
    the id under which the end of the text appears.
    """

    def __init__(
        self, tokens: Mapping[bytes, list[int]], end: int, limits: IndexLimits | None = None
    ) -> None:
        self.limits = IndexLimits() if limits is None else limits
        self._setup = (self.limits.memory, dict(tokens), end)
        self._free = threading.Semaphore(self.limits.processes)
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._ranges: dict[str, Ranges] = {}

    def compile(self, expression: str) -> Automata:
        """Compiles; ``Refusal`` where it takes more than the limits, or is no expression.

        The expression must have been read alone (``expression.read_expression``).
        """
        limits = self.limits
        by_byte, by_token = self._asked((_closed(expression), limits.max_states, limits.max_edges))
        return Automata(
            Automaton.of_table(by_byte), None if by_token is None else Automaton.of_table(by_token)
        )

    def ranges(self, classes: Iterable[str]) -> dict[str, Ranges]:
        """The characters that each of some expressions of one character matches."""
        found: dict[str, Ranges] = {}
        missing: list[str] = []
        for each in set(classes):
            known = self._ranges.get(each)
            if known is None:
                missing.append(each)
            else:
                found[each] = known
        if not missing:
            return found
        tables = self._asked(([_closed(each) for each in missing], 0, 0))[0]
        for each, (table, takes_nul) in zip(missing, tables, strict=True):
            ranges = characters(Automaton.of_table(table))
            found[each] = normalised([(0, 0), *ranges]) if takes_nul else ranges
        if len(self._ranges) > _REMEMBERED:
            self._ranges = {}
        self._ranges.update(found)
        return found

    def _asked(self, request: Any) -> Any:
        """What a process answers; ``Refusal`` where it takes too much, or the engine refuses."""
        limits = self.limits
        deadline = time.monotonic() + limits.seconds
        if not self._free.acquire(timeout=limits.seconds):
            raise self._too_long()
        try:
            child = self._child()
            try:
                answer = child.ask(request, deadline)
            except BaseException:
                child.end()
                raise
            self._idle.append(child)
        except TimeoutError:
            raise self._too_long() from None
        except EOFError:
            answer = ("memory",)
        finally:
            self._free.release()
        if answer[0] == "memory":
            megabytes = limits.memory >> 20
            raise Refusal("", "", f"the expression needs more than {megabytes} MB to compile")
        if answer[0] == "error":
            raise Refusal("", "", _reason(*answer[1:]))
        return answer[1:]

    def _child(self) -> Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_alive:
                    return child
                child.end()
        return Child([sys.executable, "-I", str(_CHILD)], self._setup)

    def _too_long(self) -> Refusal:
        return Refusal(
            "", "", f"the expression takes more than {self.limits.seconds:g} s to compile"
        )


def _closed(expression: str) -> str:
    return f"(?:{expression})\\x00"


def _reason(message: str, part: str) -> str:
    """What the engine's message means: of some part of an expression, or of the whole."""
    what = repr(part.removeprefix("(?:").removesuffix(r")\x00")) if part else "the expression"
    if "incompatible with the regex" in message:
        return f"{what} matches nothing that the vocabulary can write"
    if "building NFA" in message:
        return f"{what} is not understood"
    return f"{what}: {' '.join(message.split())}"
