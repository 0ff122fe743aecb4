"""Texts of an automaton over bytes: where one is, and the shortest way to the end."""

from __future__ import annotations

from collections.abc import Iterator

from .automaton import Automaton

_LIKED = b"a0A -_.,:/1bz"


class ByteReader:
    """A beginning of a text. See ``ending_matcher.Reader``."""

    __slots__ = ("_automaton", "_known", "_state", "exacting")

    def __init__(
        self, automaton: Automaton, state: int = 0, known: dict[int, bytes] | None = None
    ) -> None:
        self._automaton = automaton
        self._state = state
        self._known = {} if known is None else known
        self.exacting = False

    def feed(self, data: bytes) -> ByteReader:
        """After more text; ``ValueError`` where no text goes on so."""
        state = self._after(data)
        if state is None:
            raise ValueError(f"no text that matches goes on with {data!r}")
        return ByteReader(self._automaton, state, self._known)

    def _after(self, data: bytes) -> int | None:
        state: int | None = self._state
        for byte in data:
            if state is None:
                return None
            state = self._automaton.step(state, byte)
        return state

    def endings(self) -> Iterator[bytes]:
        """The shortest text that completes this one (one of several)."""
        text = self._known.get(self._state)
        if text is None:
            text = self._known[self._state] = self._shortest()
        yield text

    def _shortest(self) -> bytes:
        state, text = self._state, bytearray()
        while self._automaton.distance[state]:
            labels, targets = self._automaton.nearer(state)
            liked = (at for each in _LIKED for at in (labels == each).nonzero()[0])
            at = int(next(liked, 0))
            text.append(int(labels[at]))
            state = int(targets[at])
        return bytes(text)

    def may_end(self) -> bool:
        """Whether the text matches as it is."""
        return bool(self._automaton.accepts[self._state])

    @property
    def may_be_cut(self) -> bool:
        """There is no free text."""
        return False

    def keeps(self, ending: bytes, before: object) -> bool:
        """Whether an ending is one here too."""
        state = self._after(ending)
        return state is not None and bool(self._automaton.accepts[state])
