"""Regular expressions and choices compiled: which engine takes which, and how each comes to an end.

An expression is read alone, and the automata that outlines-core would make of it are measured.
Where they are small, it makes one over tokens, in a process of its own: its masks cost a copy, and
its distances to the end are exact. Else llguidance takes the expression, and what has been read
says how a text that has been begun can end. So do expressions that name the NUL character, which
closes texts in automata over tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ManyOf
from itertools import groupby

from .automaton import FAR as NO_WAY
from .byte_reader import ByteReader
from .characters import Ranges
from .choice_reader import ChoiceReader
from .ebnf import ROOT, Chars, Either, Node, Repeated, Sequence
from .ebnf_reader import FAR, EbnfReader, ebnf_reader
from .ending_matcher import Ending, EndingMatcher, Reader
from .expression import Atom, Branches, Loop, Part, Row, read_expression
from .grammar import CompiledGrammar, Compiler
from .index_pool import IndexLimits, IndexPool
from .refusal import Refusal
from .regular_size import is_small
from .spec import Warning
from .token_automaton import TokenAutomaton, TokenGrammar
from .token_text import TokenText
from .vocabulary import Vocabulary

Encode = Callable[[str], ManyOf[int]]

MAX_SIZE = 20_000
"""Characters of an expression, repetitions written out."""

MAX_CHOICE_BYTES = 8_000_000
"""Bytes of all options of a choice together."""

_MAX_NESTED = 80
"""Groups within each other in the expression of a choice."""


class ReadGrammar:
    """A grammar of llguidance's, with a reader that knows how its texts end."""

    __slots__ = ("_first", "_grammar", "_reader", "_tokens")

    def __init__(self, grammar: CompiledGrammar, reader: Reader, tokens: TokenText) -> None:
        self._grammar = grammar
        self._reader = reader
        self._tokens = tokens
        self._first: Ending | None = None
        self._first = self.matcher().ending()

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self._grammar.engine

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """Nothing is dropped."""
        return ()

    def matcher(self) -> EndingMatcher:
        """A matcher at the start of the output."""
        return EndingMatcher(self._grammar.matcher(), self._reader, self._tokens, self._first)


class RegularCompiler:
    """Compiles expressions and choices for one vocabulary. Safe to use from several threads."""

    __slots__ = ("_compiler", "_pool", "_tokens", "_vocabulary")

    def __init__(
        self,
        vocabulary: Vocabulary,
        encode: Encode,
        compiler: Compiler,
        limits: IndexLimits | None = None,
    ) -> None:
        self._compiler = compiler
        self._vocabulary = vocabulary
        self._tokens = TokenText(vocabulary, encode)
        self._pool = IndexPool(_texts(vocabulary), min(vocabulary.eos_ids), limits)

    @property
    def shared(self) -> tuple[object, ...]:
        """What compiled expressions and choices refer to, and share: see ``Transfer``."""
        return (self._tokens, self._vocabulary)

    def regex(self, pattern: str) -> TokenGrammar | ReadGrammar:
        """Compiles an expression that the whole output must match; ``Refusal`` says why not."""
        expression = read_expression(pattern)
        if expression.size > MAX_SIZE:
            reason = f"the expression has more than {MAX_SIZE} characters, repetitions written out"
            raise Refusal("", "", reason)
        ranges = self._pool.ranges(_classes(expression.part))
        rules = {ROOT: _node(expression.part, ranges)}
        first = ebnf_reader(rules)
        assert first is not None
        if first.least >= FAR:
            raise Refusal("", "", "no text matches the expression")
        if not expression.has_nul and is_small(first, self._pool.limits.max_states):
            return self._regular(expression.text)
        grammar = self._compiler.regex(expression.text)
        return ReadGrammar(grammar, EbnfReader.start(first, rules), self._tokens)

    def choice(self, options: ManyOf[str]) -> TokenGrammar | ReadGrammar:
        """Compiles a choice between texts, of which one may be empty; none may be given twice."""
        texts = _checked(options)
        text = f"(?:{'|'.join(map(_literal, options))})"
        if _is_small(texts, self._pool.limits.max_states) and not any("\0" in t for t in options):
            return self._regular(text)
        # One lexeme: as rules, many options would be as many items of the engine's parser.
        try:
            grammar = self._compiler.regex(_factored(sorted(options), 0))
        except Refusal as refusal:
            reason = f"the options are too many, or too long: {refusal.reason}"
            raise Refusal("", "", reason) from None
        return ReadGrammar(grammar, ChoiceReader(texts), self._tokens)

    def _regular(self, expression: str) -> TokenGrammar | ReadGrammar:
        automata = self._pool.compile(expression)
        if automata.by_byte.distance[0] == NO_WAY:
            raise Refusal("", "", "no text matches the expression")
        if automata.by_token is None:
            grammar = self._compiler.regex(expression)
            return ReadGrammar(grammar, ByteReader(automata.by_byte), self._tokens)
        if automata.by_token.distance[0] == NO_WAY:
            raise Refusal("", "", "the vocabulary has no tokens for a text that matches")
        return TokenGrammar(TokenAutomaton(automata.by_token, self._vocabulary, self._tokens))


def _classes(part: Part) -> Iterator[str]:
    """The characters of an expression that do not mean themselves."""
    if isinstance(part, Row | Branches):
        for each in part.parts:
            yield from _classes(each)
    elif isinstance(part, Loop):
        yield from _classes(part.part)
    elif isinstance(part, Atom) and not part.plain:
        yield part.text


def _node(part: Part, ranges: Mapping[str, Ranges]) -> Node:
    """An expression as a rule of a grammar."""
    if isinstance(part, Row):
        return Sequence(tuple(_node(each, ranges) for each in part.parts))
    if isinstance(part, Branches):
        return Either(tuple(_node(each, ranges) for each in part.parts))
    if isinstance(part, Loop):
        return Repeated(_node(part.part, ranges), part.low, part.high)
    if isinstance(part, Atom):
        return Chars(((ord(part.text),) * 2,) if part.plain else ranges[part.text])
    return Sequence(())


def _texts(vocabulary: Vocabulary) -> dict[bytes, list[int]]:
    """The ids of each text that tokens have. Control tokens are no text; NUL closes texts."""
    hidden = vocabulary.special_ids | vocabulary.eos_ids
    found: dict[bytes, list[int]] = {}
    for token, text in enumerate(vocabulary.token_bytes):
        if text and token not in hidden and b"\0" not in text:
            found.setdefault(text, []).append(token)
    return found


def _checked(options: ManyOf[str]) -> list[bytes]:
    if not options:
        raise Refusal("", "", "a choice needs at least one option")
    seen: dict[str, int] = {}
    for i, option in enumerate(options):
        if option in seen:
            raise Refusal("", "", f"options {seen[option]} and {i} are the same: {option[:40]!r}")
        seen[option] = i
    try:
        texts = [option.encode() for option in options]
    except UnicodeEncodeError as error:
        raise Refusal("", "", f"an option is no text: {error.reason}") from None
    if sum(map(len, texts)) > MAX_CHOICE_BYTES:
        raise Refusal("", "", f"the options have more than {MAX_CHOICE_BYTES} bytes together")
    return texts


def _is_small(texts: ManyOf[bytes], most: int) -> bool:
    """Whether the tree of the texts has at most so many nodes."""
    nodes: set[bytes] = set()
    for text in texts:
        for size in range(1, len(text) + 1):
            nodes.add(text[:size])
            if len(nodes) >= most:
                return False
    return True


def _factored(options: ManyOf[str], depth: int) -> str:
    """An expression for sorted texts, in which beginnings that they share are written once."""
    if len(options) == 1:
        return _literal(options[0])
    if depth == _MAX_NESTED:
        return f"(?:{'|'.join(map(_literal, options))})"
    first, last = options[0], options[-1]
    size = next((i for i, char in enumerate(first) if last[i : i + 1] != char), len(first))
    rests = [option[size:] for option in options]
    ends = "?" if not rests[0] else ""
    groups = groupby(rests[1:] if ends else rests, key=lambda rest: rest[0])
    branches = (_factored(list(group), depth + 1) for _, group in groups)
    return f"{_literal(first[:size])}(?:{'|'.join(branches)}){ends}"


def _literal(text: str) -> str:
    return "".join(
        char if char.isalnum() or ord(char) > 127 else f"\\x{{{ord(char):x}}}" for char in text
    )
