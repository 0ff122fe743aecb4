"""Grammars compiled by llguidance, and a request's place in one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import llguidance
import numpy as np

from .mask_cache import WORTH_KEEPING, MaskCache
from .matcher import MaskRow, Verdict, mask_words
from .refusal import Refusal
from .spec import Warning
from .token_text import TokenText
from .vocabulary import Vocabulary

Encode = Callable[[str], Sequence[int]]
"""How the model's tokenizer writes a text, without special tokens."""

_LIMITS = {
    "max_items_in_row": 50_000,
    "step_max_items": 1_000_000,
    "step_lexer_fuel": 2_000_000,
    "max_lexer_states": 1_000_000,
}
"""Unions of hundreds of similar objects need more than the engine's defaults, and so does a text
of 100,000 characters, each of which has up to four states."""

_JSON_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def _free(whitespace: int) -> dict[str, Any]:
    """Options for up to so many blanks wherever JSON allows them."""
    blanks = f"[ \\n\\r\\t]{{0,{whitespace}}}"
    return {"whitespace_flexible": True, "whitespace_pattern": blanks}


class Compiler:
    """Compiles constraints for one vocabulary.

    ``encode`` gives the tokenisation of forced text. Safe to use from several threads; the
    interpreter lock is released while llguidance works.
    """

    __slots__ = ("_eos_ids", "_limits", "_masks", "_tokenizer", "_words")

    def __init__(self, vocabulary: Vocabulary, encode: Encode) -> None:
        if not vocabulary.eos_ids:
            raise ValueError("a vocabulary without an end token cannot end a constrained output")
        self._eos_ids = sorted(vocabulary.eos_ids)
        self._words = mask_words(vocabulary.size)
        self._masks = MaskCache(self._words)
        self._limits = llguidance.LLParserLimits(verbose_errors=False, **_LIMITS)
        wrapper = llguidance.TokenizerWrapper(_Bytes(vocabulary, encode))
        self._tokenizer = llguidance.LLTokenizer(
            wrapper, n_vocab=vocabulary.size, eos_token=self._eos_ids
        )

    def enforced(self, schema: Any, whitespace: int = 0) -> CompiledGrammar:
        """Compiles a schema of the engine's own dialect; ``Refusal`` with the engine's message.

        ``whitespace`` is the most blanks and newlines between the parts of the text; with 0 they
        are fixed.
        """
        return self._schema(schema, _free(whitespace) if whitespace else _JSON_OPTIONS)

    def _schema(self, schema: Any, options: Mapping[str, Any] = _JSON_OPTIONS) -> CompiledGrammar:
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=dict(options))
        except ValueError as error:
            raise _EngineRefusal("", "", str(error)) from error
        return self.compiled(grammar)

    def regex(self, expression: str) -> CompiledGrammar:
        """Compiles a regular expression that the whole output must match."""
        return self.compiled(llguidance.LLMatcher.grammar_from_regex(expression))

    def choice(self, options: Sequence[str]) -> CompiledGrammar:
        """Compiles a choice between texts."""
        if not options:
            raise Refusal("", "", "a choice needs at least one option")
        return self.compiled(llguidance.grammar_from("choice", json.dumps(list(options))))

    def lark(self, grammar: str) -> CompiledGrammar:
        """Compiles a grammar in llguidance's dialect of Lark."""
        return self.compiled(llguidance.LLMatcher.grammar_from_lark(grammar))

    def usable(self, grammar: CompiledGrammar) -> CompiledGrammar:
        """The grammar, if its first mask can be had: ``Refusal`` else, as where no text fits."""
        try:
            grammar.matcher().fill(np.zeros(self._words, np.int32))
        except MatcherError as error:
            raise Refusal("", "", f"no text can be begun: {error}") from None
        return grammar

    def compiled(self, grammar: str) -> CompiledGrammar:
        """Compiles what the engine calls a grammar, from its own text."""
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise _EngineRefusal("", "", _first_line(matcher.get_error()))
        return CompiledGrammar(self, grammar, matcher)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens that end an output."""
        return tuple(self._eos_ids)

    @property
    def words(self) -> int:
        """Words of a mask row."""
        return self._words

    @property
    def masks(self) -> MaskCache:
        """The masks of all its grammars."""
        return self._masks


class _EngineRefusal(Refusal):
    """A refusal of the engine's, which knows no places."""


class CompiledGrammar:
    """A constraint that compiled. Gives matchers, and never changes."""

    __slots__ = ("_compiler", "_matcher", "_source", "_start")

    def __init__(self, compiler: Compiler, source: str, matcher: llguidance.LLMatcher) -> None:
        self._compiler = compiler
        self._source = source
        self._matcher = matcher
        self._start = compiler.masks.start()

    def __reduce__(self) -> Any:
        return Compiler.compiled, (self._compiler, self._source)

    @property
    def engine(self) -> str:
        """The engine's name."""
        return "llguidance"

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """Nothing is dropped."""
        return ()

    def matcher(self) -> GrammarMatcher:
        """A matcher at the start of the output."""
        return GrammarMatcher(self._matcher.deep_copy(), self._compiler, [self._start])


class MatcherError(RuntimeError):
    """The engine gave up in mid-run (a limit of its parser); the matcher is of no more use."""


class GrammarMatcher:
    """One request's place in a grammar of llguidance's. See ``matcher.Matcher``."""

    __slots__ = (
        "_address",
        "_compiler",
        "_ended",
        "_eos_ids",
        "_masks",
        "_matcher",
        "_places",
        "_row",
        "_words",
    )

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        compiler: Compiler,
        places: Sequence[int],
        ended: bool = False,
    ) -> None:
        self._matcher = matcher
        self._compiler = compiler
        self._eos_ids = compiler.eos_ids
        self._words = compiler.words
        self._masks = compiler.masks
        # Of the mask cache: the place at the start, and after each token that was consumed.
        self._places = list(places)
        # The engine writes to an address, and to ask numpy for one takes longer than many a mask.
        self._row = np.zeros(self._words, np.int32)
        self._address: int = self._row.ctypes.data
        # Where nothing else can follow, the engine stops by itself and takes no end token.
        self._ended = ended

    @property
    def is_complete(self) -> bool:
        """Nothing but the end of the output can follow."""
        if self._matcher.is_stopped():
            return True
        if not self._matcher.is_accepting():
            return False
        row = np.zeros(self._words, np.int32)
        self.fill(row)
        for token in self._eos_ids:
            row[token // 32] &= ~_bit(token)
        return not row.any()

    @property
    def can_stop(self) -> bool:
        """The output may end here."""
        return bool(self._matcher.is_accepting())

    def advance(self, token: int, remaining: int | None = None) -> Verdict:
        """Moves on by a token that the mask allowed."""
        self.consume([token])
        return "ok"

    def completion(self) -> list[int]:
        """None is known."""
        return []

    def consume(self, tokens: Sequence[int]) -> None:
        """Moves on by allowed tokens; ``ValueError`` for another, and then nothing has moved."""
        wanted = list(tokens)
        if not wanted:
            return
        self._move(wanted)
        places = self._places
        for token in wanted:
            places.append(hash((places[-1], token)))

    def _move(self, wanted: list[int]) -> None:
        if len(wanted) == 1 and self._matcher.is_stopped() and not self._ended:
            if wanted[0] not in self._eos_ids:
                raise ValueError(f"only the end token may follow, not {wanted}")
            self._ended = True
            return
        # validate_tokens changes nothing; a refused consume_token would end the matcher.
        if self._matcher.validate_tokens(wanted) < len(wanted):
            self._raise_if_dead()
            raise ValueError(f"the grammar does not allow tokens {wanted}")
        head = wanted[:-1] if wanted[-1] in self._eos_ids else wanted
        if head and not self._matcher.consume_tokens(head):
            self._raise_if_dead()
        if len(head) < len(wanted):
            if not self._matcher.is_stopped():
                self._matcher.consume_tokens(wanted[-1:])
            else:
                self._ended = True

    def takes(self, tokens: Sequence[int]) -> bool:
        """Whether the output could go on with these tokens, end tokens included."""
        wanted = list(tokens)
        if self._matcher.is_stopped():
            return not self._ended and len(wanted) == 1 and wanted[0] in self._eos_ids
        return bool(self._matcher.validate_tokens(wanted) == len(wanted))

    def is_end(self, token: int) -> bool:
        """Whether a token ends the output."""
        return token in self._eos_ids

    def clear_end(self, mask_row: MaskRow) -> None:
        """Forbids the end tokens."""
        for token in self._eos_ids:
            mask_row[token // 32] &= ~_bit(token)

    def rollback(self, n: int) -> None:
        """Takes the last ``n`` consumed tokens back."""
        moved = n - 1 if n and self._ended else n
        if moved and not self._matcher.rollback(moved):
            raise ValueError(f"cannot take {n} tokens back")
        if n:
            self._ended = False
            del self._places[-n:]

    def fork(self) -> GrammarMatcher:
        """An independent matcher at the same place."""
        copy = self._matcher.deep_copy()
        return GrammarMatcher(copy, self._compiler, self._places, self._ended)

    def forced(self) -> list[int]:
        """Tokens that must come next; empty where there is a choice."""
        return list(self._matcher.compute_ff_tokens())

    def fill(self, mask_row: MaskRow) -> None:
        """Writes which tokens may come next; words past the vocabulary are cleared."""
        if mask_row.size < self._words:
            raise ValueError(f"a mask row must hold {self._words} words")
        row = self._masks.get(self._places[-1])
        if row is None:
            row = self._row
            began = perf_counter()
            self._matcher.unsafe_compute_mask_ptr(self._address, self._words * 4)
            if perf_counter() - began > WORTH_KEEPING:
                self._masks.put(self._places[-1], row)
            self._raise_if_dead()
        if mask_row.size == self._words:
            mask_row[:] = row
        else:
            mask_row[: self._words] = row
            mask_row[self._words :] = 0

    def _raise_if_dead(self) -> None:
        if self._matcher.is_error():
            raise MatcherError(_first_line(self._matcher.get_error()))


class _Bytes:
    """A vocabulary in the shape that llguidance reads."""

    def __init__(self, vocabulary: Vocabulary, encode: Encode) -> None:
        # 0xFF cannot occur in UTF-8: llguidance's mark for tokens that no text matches.
        special = vocabulary.special_ids | vocabulary.eos_ids
        self.tokens = [
            b"\xff<%d>" % token if text is None or token in special else text
            for token, text in enumerate(vocabulary.token_bytes)
        ]
        self.eos_token_id = min(vocabulary.eos_ids)
        self.bos_token_id = None
        self.special_token_ids = sorted(
            special | {token for token, text in enumerate(vocabulary.token_bytes) if text is None}
        )
        # llguidance takes the tokens for the text, whatever bytes they have: a blank that a
        # tokenizer puts before every text would be forced upon the output.
        self._exact = TokenText(vocabulary, encode)

    def __call__(self, text: str | bytes) -> list[int]:
        return list(self._exact.tokens(text.encode() if isinstance(text, str) else text))


def _bit(token: int) -> int:
    """The token's bit in its word, as a signed number."""
    place = token % 32
    return -(1 << 31) if place == 31 else 1 << place


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "the engine gives no reason"
