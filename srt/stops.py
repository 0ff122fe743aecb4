"""Stop strings over the bytes that tokens bring: where one ends, and what may yet become one.

Tokens are byte strings that may end anywhere, inside a character too, so stop strings are matched
over the UTF-8 bytes of the output. Special tokens are no text where a request skips them; the same
rule must hold for whoever detects a stop and whoever cuts it, so it is here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

_AUTOMATA_KEPT = 128


class Match(NamedTuple):
    """A stop string found at ``[start, end)`` of all bytes fed."""

    stop: str
    start: int
    end: int


class TokenText:
    """What each token adds to the text that stop strings are looked for in.

    ``token_bytes[id]`` are a token's bytes (``None``: there is no such token), ``special_ids`` the
    tokens that are no text where ``skip_special_tokens`` is on. Ids beyond the table are no text.
    """

    __slots__ = ("_all", "_plain")

    def __init__(
        self, token_bytes: Sequence[bytes | None], special_ids: Collection[int] = ()
    ) -> None:
        self._all = [raw or b"" for raw in token_bytes]
        self._plain = list(self._all)
        for token in special_ids:
            if token < len(self._plain):
                self._plain[token] = b""

    def of(self, token: int, skip_special: bool = True, shown: Collection[int] = ()) -> bytes:
        """The text of one token, in bytes; ``shown`` are never skipped."""
        table = self._plain if skip_special and token not in shown else self._all
        return table[token] if token < len(table) else b""


class StopMatcher:
    """One sample's place in the search for its stop strings.

    A match is reported where it ends: the earliest end wins, and of the stops that end there the
    longest. Bytes after a match are fed on, so a caller that may not stop yet (``min_tokens``)
    ignores the match and goes on. Costs a table look-up a byte.
    """

    __slots__ = ("_automaton", "_fed", "_state")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._automaton = _automaton(stops)
        self._state = 0
        self._fed = 0

    def feed(self, data: bytes) -> Match | None:
        """Moves on by ``data``; the first match that ends in it."""
        automaton, state = self._automaton, self._state
        if state == 0 and automaton.starts.isdisjoint(data):
            self._fed += len(data)
            return None
        found: Match | None = None
        edges, ends = automaton.edges, automaton.ends
        for place, byte in enumerate(data, self._fed + 1):
            after = edges[state].get(byte)
            state = automaton.step(state, byte) if after is None else after
            if found is None and ends[state] is not None:
                stop, length = ends[state] or ("", 0)
                found = Match(stop, place - length, place)
        self._state = state
        self._fed += len(data)
        return found

    def held(self) -> int:
        """Length of the longest end of the bytes fed with which a stop begins (or that is one)."""
        return self._automaton.depth[self._state]


class _Automaton:
    """Aho and Corasick's automaton (CACM 18(6), 1975) over bytes.

    State 0 is the start. ``edges[state]`` holds the trie's transitions and, once asked for, those
    through failure links. ``ends[state]`` is the longest stop that ends there, and its length.
    """

    __slots__ = ("depth", "edges", "ends", "fail", "starts")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.edges: list[dict[int, int]] = [{}]
        self.depth = [0]
        self.ends: list[tuple[str, int] | None] = [None]
        for stop in stops:
            self._insert(stop)
        self.starts = frozenset(self.edges[0])
        self.fail = [0] * len(self.edges)
        self._link()

    def step(self, state: int, byte: int) -> int:
        """The state after ``byte``, remembered in ``edges``."""
        at = state
        while at and byte not in self.edges[at]:
            at = self.fail[at]
        after = self.edges[at].get(byte, 0)
        self.edges[state][byte] = after
        return after

    def _insert(self, stop: str) -> None:
        state = 0
        raw = stop.encode("utf-8", "surrogatepass")
        for byte in raw:
            after = self.edges[state].get(byte)
            if after is None:
                after = self.edges[state][byte] = len(self.edges)
                self.edges.append({})
                self.depth.append(self.depth[state] + 1)
                self.ends.append(None)
            state = after
        if raw and self.ends[state] is None:
            self.ends[state] = (stop, len(raw))

    def _link(self) -> None:
        level = list(self.edges[0].values())
        while level:
            below: list[int] = []
            for state in level:
                if self.ends[state] is None:
                    self.ends[state] = self.ends[self.fail[state]]
                for byte, child in self.edges[state].items():
                    at = self.fail[state]
                    while at and byte not in self.edges[at]:
                        at = self.fail[at]
                    target = self.edges[at].get(byte, 0)
                    self.fail[child] = target if target != child else 0
                    below.append(child)
            level = below


@lru_cache(maxsize=_AUTOMATA_KEPT)
def _automaton(stops: tuple[str, ...]) -> _Automaton:
    return _Automaton(stops)
