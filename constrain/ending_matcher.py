"""A grammar's masks, and beside them an ending that is known to exist.

At each token an *ending* is kept: text that completes the output, that the grammar takes, and with
which the output satisfies what no context-free grammar can say (``uniqueItems``, ``contains``,
``not``, which choices of a ``oneOf`` hold). A token after which no ending is found is vetoed, so
that what is written can always be completed; and since the ending's length is known, it can be
completed in time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from .grammar import GrammarMatcher
from .matcher import MaskRow, Verdict
from .token_text import TokenText

_TRIES = 8
"""Endings that are tried: the reader has judged them, and the grammar seldom disagrees."""

_ROOM = 64
"""Tokens of the budget, beyond four times what the last ending needed, above which a token passes
whose ending is not known yet, where the grammar says that there is one."""


class Reader(Protocol):
    """What has been written so far, as someone sees it who knows what it means. Immutable."""

    @property
    def exacting(self) -> bool:
        """Whether the grammar takes more than is right: a token without an ending is vetoed."""
        ...

    def feed(self, data: bytes) -> Reader:
        """After more text. ``ValueError`` or ``OverflowError`` for what must not be written."""
        ...

    def endings(self) -> Iterator[bytes]:
        """Texts that would complete the output rightly, short ones first."""
        ...

    def may_end(self) -> bool:
        """Whether the output is right as it is, where the grammar lets it end."""
        ...

    @property
    def may_be_cut(self) -> bool:
        """Whether the output may be cut here, without an end: in free text."""
        ...

    def keeps(self, ending: bytes, before: object) -> bool:
        """Whether an ending of ``before``, which this continues, is plainly one here too."""
        ...


class Ending(NamedTuple):
    """Text that completes an output, and its tokens where they are known, end token included."""

    text: bytes
    tokens: tuple[int, ...] | None = None


class EndingMatcher:
    """One request's place in an output. See ``matcher.Matcher``."""

    __slots__ = ("_ending", "_inner", "_past", "_reader", "_tokens")

    def __init__(
        self,
        inner: GrammarMatcher,
        reader: Reader,
        tokens: TokenText,
        ending: Ending | None = None,
        past: Sequence[tuple[Reader, Ending | None]] = (),
    ) -> None:
        self._inner = inner
        self._reader = reader
        self._tokens = tokens
        self._ending = ending
        self._past = list(past)

    @property
    def is_complete(self) -> bool:
        """Nothing but the end of the output can follow."""
        return self._inner.is_complete

    @property
    def can_stop(self) -> bool:
        """The output may end here."""
        return self._inner.can_stop and self._reader.may_end()

    def fill(self, mask_row: MaskRow) -> None:
        """Writes which tokens may come next."""
        self._inner.fill(mask_row)
        if self._reader.exacting and self._inner.can_stop and not self._reader.may_end():
            self._inner.clear_end(mask_row)

    def advance(self, token: int, remaining: int | None = None) -> Verdict:
        """Moves on by an allowed token, if an ending remains that is short enough.

        In free text, which may be cut, all may be written but the beginning of what could not be
        completed in time: that is vetoed, and the text goes on.
        """
        if self._inner.is_end(token):
            if self._inner.can_stop and not self._reader.may_end():
                return "veto"
            self._inner.consume([token])
            self._move(self._reader, self._ending)
            return "ok"
        data = self._tokens.bytes_of(token)
        try:
            reader = self._reader.feed(data)
        except (ValueError, OverflowError):
            if not self._inner.takes([token]):
                raise ValueError(f"the grammar does not allow token {token}") from None
            return "veto"
        self._inner.consume([token])
        ending = self._kept(token, data, reader)
        if ending is None and (remaining is not None or reader.exacting):
            ending = self._found(reader, remaining)
        left = None if reader.may_be_cut else remaining
        verdict = self._judged(ending, left, reader.exacting)
        if verdict == "budget" and self._reader.may_be_cut:
            verdict = "veto"
        if verdict == "ok":
            self._move(reader, ending)
        else:
            self._inner.rollback(1)
        return verdict

    def _move(self, reader: Reader, ending: Ending | None) -> None:
        self._past.append((self._reader, self._ending))
        self._reader, self._ending = reader, ending

    def _judged(self, ending: Ending | None, remaining: int | None, exacting: bool) -> Verdict:
        if ending is None:
            if exacting:
                return "veto"
            if remaining is None or self._ending is None:
                return "ok"
            room = 4 * len(self._tokens_of(self._ending)) + _ROOM
            return "ok" if remaining > room else "budget"
        if remaining is None or len(ending.text) < remaining:  # a token has at least one byte
            return "ok"
        return "ok" if len(self._tokens_of(ending)) <= remaining else "budget"

    def _tokens_of(self, ending: Ending) -> tuple[int, ...]:
        return self._tokens.ending(ending.text) if ending.tokens is None else ending.tokens

    def _kept(self, token: int, data: bytes, reader: Reader) -> Ending | None:
        """The ending that was known, where it still is one."""
        known = self._ending
        if known is None:
            return None
        if known.tokens is not None and known.tokens[0] == token:
            return Ending(known.text[len(data) :], known.tokens[1:])
        if known.text.startswith(data):
            return Ending(known.text[len(data) :])
        return known if reader.keeps(known.text, self._reader) else None

    def _found(self, reader: Reader, remaining: int | None) -> Ending | None:
        """The first ending that the grammar takes too, of those that come in time if there is
        one."""
        late: Ending | None = None
        for text in itertools.islice(reader.endings(), _TRIES):
            tokens = self._tokens.ending(text)
            if self._inner.takes(tokens):
                ending = Ending(text, tokens)
                if remaining is None or len(tokens) <= remaining:
                    return ending
                late = late or ending
        return late

    def ending(self) -> Ending | None:
        """A verified ending, looked for now if none is known."""
        if self._ending is None:
            self._ending = self._found(self._reader, None)
        return self._ending

    def completion(self) -> list[int]:
        """Tokens that complete the output, the end token last; empty if none are known."""
        ending = self.ending()
        return [] if ending is None else list(self._tokens_of(ending))

    def forced(self) -> list[int]:
        """Tokens that must come next."""
        return self._inner.forced()

    def consume(self, tokens: Sequence[int]) -> None:
        """Moves on by tokens that were verified or taken before."""
        self._inner.consume(tokens)
        for token in tokens:
            if self._inner.is_end(token):
                self._move(self._reader, self._ending)
                continue
            data = self._tokens.bytes_of(token)
            reader = self._reader.feed(data)
            self._move(reader, self._kept(token, data, reader))

    def rollback(self, n: int) -> None:
        """Takes the last ``n`` tokens back."""
        if not 0 <= n <= len(self._past):
            raise ValueError(f"cannot take {n} tokens back")
        if n:
            self._inner.rollback(n)
            self._reader, self._ending = self._past[-n]
            del self._past[-n:]

    def fork(self) -> EndingMatcher:
        """An independent matcher at the same place."""
        inner = self._inner.fork()
        return EndingMatcher(inner, self._reader, self._tokens, self._ending, self._past)
