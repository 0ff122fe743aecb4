"""Automata over tokens, as outlines-core makes them, and a request's place in one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .automaton import Automaton
from .matcher import MaskRow, Verdict, mask_words
from .spec import Warning
from .token_text import TokenText
from .vocabulary import Vocabulary

_FORCED_BYTES = 4096
"""Longest forced text that is looked for at once."""

_FEW = 128
"""Tokens in a state above which they cannot all be beginnings of one text."""


class TokenAutomaton:
    """An automaton over token ids, with what follows from each state: found once, then kept."""

    __slots__ = ("_automaton", "_forced", "_rows", "_tokens", "_words", "end", "eos_ids")

    def __init__(self, automaton: Automaton, vocabulary: Vocabulary, tokens: TokenText) -> None:
        self._automaton = automaton
        self._tokens = tokens
        self._words = mask_words(vocabulary.size)
        self.eos_ids = vocabulary.eos_ids
        self.end = min(vocabulary.eos_ids)
        self._rows: dict[int, MaskRow] = {}
        self._forced: dict[int, list[int]] = {}

    def accepts(self, state: int) -> bool:
        """Whether the text may end in a state."""
        return bool(self._automaton.accepts[state])

    def step(self, state: int, token: int) -> int | None:
        """The state after a token; ``None`` where it may not come."""
        return self._automaton.step(state, token)

    def is_last(self, state: int) -> bool:
        """Whether no text may follow."""
        return not len(self._automaton.edges(state)[0])

    def distance(self, state: int) -> int:
        """The least number of tokens that complete the output, the end token included."""
        return int(self._automaton.distance[state]) + 1

    def row(self, state: int) -> MaskRow:
        """The mask of a state; not to be changed."""
        row = self._rows.get(state)
        if row is None:
            allowed = np.zeros(self._words * 32, np.bool_)
            allowed[self._automaton.edges(state)[0]] = True
            if self.accepts(state):
                allowed[sorted(self.eos_ids)] = True
            row = np.packbits(allowed, bitorder="little").view(np.int32)
            self._rows[state] = row
        return row

    def end_row(self) -> MaskRow:
        """The mask after the end."""
        row = np.zeros(self._words * 32, np.bool_)
        row[sorted(self.eos_ids)] = True
        return np.packbits(row, bitorder="little").view(np.int32)

    def completion(self, state: int) -> list[int]:
        """A shortest sequence of tokens to the end of the output, the end token last."""
        tokens = []
        while self._automaton.distance[state]:
            labels, targets = self._automaton.nearer(state)
            tokens.append(int(labels[0]))
            state = int(targets[0])
        return [*tokens, self.end]

    def forced(self, state: int) -> list[int]:
        """Tokens of the text that must come next, as it is tokenised, up to where what follows it
        could be part of a token."""
        tokens = self._forced.get(state)
        if tokens is None:
            tokens = self._forced[state] = self._run(state, self._forced_text(state))
        return tokens

    def _forced_text(self, state: int) -> bytes:
        text = b""
        while len(text) < _FORCED_BYTES and not self.accepts(state):
            labels, targets = self._automaton.edges(state)
            if not 0 < len(labels) <= _FEW:
                break
            texts = [self._tokens.bytes_of(int(token)) for token in labels]
            shortest = min(range(len(texts)), key=lambda i: len(texts[i]))
            if not all(each.startswith(texts[shortest]) for each in texts):
                break
            text += texts[shortest]
            state = int(targets[shortest])
        return text

    def _run(self, state: int, text: bytes) -> list[int]:
        tokens: list[int] = []
        left = len(text)
        for token in self._tokens.tokens(text) if text else ():
            allowed = self._automaton.edges(state)[0]
            longest = max(len(self._tokens.bytes_of(int(each))) for each in allowed)
            then = self.step(state, token)
            if longest > left or then is None:
                break
            tokens.append(token)
            left -= len(self._tokens.bytes_of(token))
            state = then
        return tokens


class TokenGrammar:
    """A regular constraint with an automaton over tokens. Gives matchers, and never changes."""

    __slots__ = ("_automaton",)

    def __init__(self, automaton: TokenAutomaton) -> None:
        self._automaton = automaton

    @property
    def engine(self) -> str:
        """The engine's name."""
        return "outlines-core"

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """Nothing is dropped."""
        return ()

    def matcher(self) -> TokenMatcher:
        """A matcher at the start of the output."""
        return TokenMatcher(self._automaton)


class TokenMatcher:
    """One request's place in an automaton over tokens. See ``matcher.Matcher``."""

    __slots__ = ("_automaton", "_ended", "_past", "_state")

    def __init__(
        self,
        automaton: TokenAutomaton,
        state: int = 0,
        past: Sequence[int] = (),
        ended: bool = False,
    ) -> None:
        self._automaton = automaton
        self._state = state
        self._past = list(past)
        self._ended = ended

    @property
    def is_complete(self) -> bool:
        """Nothing but the end of the output can follow."""
        return self._ended or (self.can_stop and self._automaton.is_last(self._state))

    @property
    def can_stop(self) -> bool:
        """The output may end here."""
        return self._automaton.accepts(self._state)

    def fill(self, mask_row: MaskRow) -> None:
        """Writes which tokens may come next; words past the vocabulary are cleared."""
        row = self._automaton.end_row() if self._ended else self._automaton.row(self._state)
        if mask_row.size < row.size:
            raise ValueError(f"a mask row must hold {row.size} words")
        mask_row[: row.size] = row
        mask_row[row.size :] = 0

    def advance(self, token: int, remaining: int | None = None) -> Verdict:
        """Moves on by an allowed token, if the output can be completed in time after it."""
        then = self._next(token)
        ends = token in self._automaton.eos_ids
        if remaining is not None and not ends and self._automaton.distance(then) > remaining:
            return "budget"
        self._past.append(self._state)
        self._state, self._ended = then, ends
        return "ok"

    def _next(self, token: int) -> int:
        if not self._ended:
            if token in self._automaton.eos_ids:
                if self.can_stop:
                    return self._state
            else:
                then = self._automaton.step(self._state, token)
                if then is not None:
                    return then
        raise ValueError(f"token {token} may not come here")

    def forced(self) -> list[int]:
        """Tokens that must come next; empty where there is a choice."""
        return [] if self._ended else list(self._automaton.forced(self._state))

    def completion(self) -> list[int]:
        """The fewest tokens that complete the output."""
        return [] if self._ended else self._automaton.completion(self._state)

    def consume(self, tokens: Sequence[int]) -> None:
        """Moves on by allowed tokens; ``ValueError`` for another, and then nothing has moved."""
        done = 0
        try:
            for token in tokens:
                self.advance(token)
                done += 1
        except ValueError:
            self.rollback(done)
            raise

    def rollback(self, n: int) -> None:
        """Takes the last ``n`` consumed tokens back."""
        if not 0 <= n <= len(self._past):
            raise ValueError(f"cannot take {n} tokens back")
        if n:
            self._state, self._ended = self._past[-n], False
            del self._past[-n:]

    def fork(self) -> TokenMatcher:
        """An independent matcher at the same place."""
        return TokenMatcher(self._automaton, self._state, self._past, self._ended)
