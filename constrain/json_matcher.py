"""JSON under a schema: a grammar's masks, and beside them an ending that is known to exist.

At each token an *ending* is kept: text that completes the document, that the grammar takes, and
with which the document satisfies the whole schema, also where no context-free grammar can say it
(``uniqueItems``, ``contains``, ``not``, which choices of a ``oneOf`` hold). A token after which no
ending is found is vetoed, so that what is written can always be completed; and since the ending's
length is known, it can be completed in time.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from .closing import Closer
from .evaluate import satisfies
from .grammar import CompiledGrammar, GrammarMatcher
from .json_text import JsonText, Mode, is_double
from .matcher import MaskRow, Verdict
from .plan import SchemaPlan
from .refusal import Refusal
from .spec import Warning
from .token_text import TokenText

_TRIES = 8
"""Endings that are tried where the grammar says all that the schema does."""

_TRIES_WITH_RESIDUE = 64
"""Endings that are tried where values must be judged whole."""

_ROOM = 64
"""Tokens of the budget, beyond four times what the last ending needed, above which a token passes
whose ending is not known yet, where the grammar says that there is one."""


class Ending(NamedTuple):
    """Text that completes a document, and its tokens where they are known, end token included."""

    text: bytes
    tokens: tuple[int, ...] | None = None


class JsonGrammar:
    """A schema that compiled. Gives matchers."""

    __slots__ = ("_grammar", "closer", "first", "plan", "tokens")

    def __init__(self, grammar: CompiledGrammar, plan: SchemaPlan, tokens: TokenText) -> None:
        self._grammar = grammar
        self.plan = plan
        self.tokens = tokens
        self.closer = Closer(plan.exact)
        self.first: Ending | None = None
        self.first = self.matcher().ending()
        if self.first is None and plan.residue:
            raise Refusal("", "", "no value that satisfies the whole schema was found")

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self._grammar.engine

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """Keywords that are done without."""
        return self.plan.warnings

    def matcher(self) -> JsonMatcher:
        """A matcher at the start of the output."""
        return JsonMatcher(self, self._grammar.matcher(), JsonText(), self.first)


class JsonMatcher:
    """One request's place in a JSON text. See ``matcher.Matcher``."""

    __slots__ = ("_ending", "_grammar", "_inner", "_past", "_plain", "_state")

    def __init__(
        self,
        grammar: JsonGrammar,
        inner: GrammarMatcher,
        state: JsonText,
        ending: Ending | None,
        past: Sequence[tuple[JsonText, Ending | None]] = (),
    ) -> None:
        self._grammar = grammar
        self._inner = inner
        self._state = state
        self._ending = ending
        self._past = list(past)
        self._plain: tuple[int, bool] = (-1, False)

    @property
    def is_complete(self) -> bool:
        """Nothing but the end of the output can follow."""
        return self._inner.is_complete

    @property
    def can_stop(self) -> bool:
        """The output may end here."""
        return self._inner.can_stop and (not self._ends_open or self._satisfied(b""))

    @property
    def _ends_open(self) -> bool:
        """Whether this may be the end of a document that has not been judged yet: a number."""
        return self._grammar.plan.residue and not self._state.stack

    def fill(self, mask_row: MaskRow) -> None:
        """Writes which tokens may come next."""
        self._inner.fill(mask_row)
        if self._ends_open and self._inner.can_stop and not self._satisfied(b""):
            self._inner.clear_end(mask_row)

    def advance(self, token: int, remaining: int | None = None) -> Verdict:
        """Moves on by an allowed token, if an ending remains that is short enough."""
        if self._inner.is_end(token):
            if not self.can_stop:
                return "veto"
            self._move(token, self._state, self._ending)
            return "ok"
        data = self._grammar.tokens.bytes_of(token)
        before = self._state
        try:
            state = before.feed(data)
        except OverflowError:
            return "veto"
        if state.mode is Mode.NUMBER and not is_double(state.text[state.at :]):
            return "veto"
        self._inner.consume([token])
        ending = self._kept(token, data, before, state)
        if ending is None and (remaining is not None or self._grammar.plan.residue):
            ending = self._found(state, remaining)
        verdict = self._judged(ending, remaining)
        if verdict != "ok":
            self._inner.rollback(1)
            return verdict
        self._past.append((before, self._ending))
        self._state, self._ending = state, ending
        return "ok"

    def _judged(self, ending: Ending | None, remaining: int | None) -> Verdict:
        if ending is None:
            if self._grammar.plan.residue:
                return "veto"
            known = self._ending
            if remaining is None or known is None:
                return "ok"
            room = 4 * len(self._grammar.tokens.ending(known.text)) + _ROOM
            return "ok" if remaining > room else "budget"
        if remaining is None or len(ending.text) < remaining:  # a token has at least one byte
            return "ok"
        return "ok" if len(self._tokens_of(ending)) <= remaining else "budget"

    def _tokens_of(self, ending: Ending) -> tuple[int, ...]:
        return self._grammar.tokens.ending(ending.text) if ending.tokens is None else ending.tokens

    def _kept(self, token: int, data: bytes, before: JsonText, state: JsonText) -> Ending | None:
        """The ending that was known, where it still is one."""
        known = self._ending
        if known is None:
            return None
        if known.tokens is not None and known.tokens[0] == token:
            return Ending(known.text[len(data) :], known.tokens[1:])
        if known.text.startswith(data):
            return Ending(known.text[len(data) :])
        if self._grammar.plan.residue or not (before.in_free_text and state.in_free_text):
            return None
        if before.at != state.at:
            return None
        if self._plain[0] != state.at:
            self._plain = (state.at, self._grammar.closer.in_plain_string(before))
        return known if self._plain[1] else None

    def _found(self, state: JsonText, remaining: int | None) -> Ending | None:
        """The first ending that the grammar and the whole schema take, of those that come in time
        if there is one."""
        grammar = self._grammar
        tries = _TRIES_WITH_RESIDUE if grammar.plan.residue else _TRIES
        late: Ending | None = None
        for text in itertools.islice(grammar.closer.endings(state), tries):
            if grammar.plan.residue and not self._satisfied(text, state):
                continue
            tokens = grammar.tokens.ending(text)
            if not self._inner.takes(tokens):
                continue
            ending = Ending(text, tokens)
            if remaining is None or len(tokens) <= remaining:
                return ending
            late = late or ending
        return late

    def _satisfied(self, ending: bytes, state: JsonText | None = None) -> bool:
        """Whether the document satisfies the schema with this ending."""
        exact = self._grammar.plan.exact
        try:
            value: Any = json.loads((state or self._state).text + ending)
        except ValueError:
            return False
        return satisfies(value, exact, exact)

    def ending(self) -> Ending | None:
        """A verified ending, looked for now if none is known."""
        if self._ending is None:
            self._ending = self._found(self._state, None)
        return self._ending

    def completion(self) -> list[int]:
        """Tokens that complete the document, the end token last; empty if none are known."""
        ending = self.ending()
        return [] if ending is None else list(self._tokens_of(ending))

    def forced(self) -> list[int]:
        """Tokens that must come next."""
        return self._inner.forced()

    def consume(self, tokens: Sequence[int]) -> None:
        """Moves on by tokens that were verified or taken before."""
        self._inner.consume(tokens)
        for token in tokens:
            data = b"" if self._inner.is_end(token) else self._grammar.tokens.bytes_of(token)
            state = self._state.feed(data)
            self._past.append((self._state, self._ending))
            self._ending = self._kept(token, data, self._state, state) if data else self._ending
            self._state = state

    def _move(self, token: int, state: JsonText, ending: Ending | None) -> None:
        self._inner.consume([token])
        self._past.append((self._state, self._ending))
        self._state, self._ending = state, ending

    def rollback(self, n: int) -> None:
        """Takes the last ``n`` tokens back."""
        if not 0 <= n <= len(self._past):
            raise ValueError(f"cannot take {n} tokens back")
        if n:
            self._inner.rollback(n)
            self._state, self._ending = self._past[-n]
            del self._past[-n:]

    def fork(self) -> JsonMatcher:
        """An independent matcher at the same place."""
        return JsonMatcher(self._grammar, self._inner.fork(), self._state, self._ending, self._past)
