"""From a constraint to matchers: which engine takes which kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .ebnf import lark, read_grammar
from .ebnf_reader import EbnfReader, ebnf_reader
from .grammar import Compiler
from .json_schema import compile_schema
from .lark_text import check_lark
from .matcher import Matcher
from .regular import ReadGrammar, RegularCompiler
from .spec import Choice, Constraint, JsonSchema, Regex, StructuralTag, Warning
from .tags import TagCompiler
from .token_text import TokenText
from .vocabulary import Vocabulary


class Compiled(Protocol):
    """A constraint that compiled: gives matchers, and never changes."""

    @property
    def engine(self) -> str:
        """The engine that was chosen for it, by name."""
        ...

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """What a lenient constraint does without."""
        ...

    def matcher(self) -> Matcher:
        """A matcher at the start of the output."""
        ...


class ConstraintCompiler:
    """Compiles constraints of all kinds for one vocabulary. Safe to use from several threads.

    ``encode`` gives the tokenisation of a text, without special tokens.
    """

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]]) -> None:
        self._grammars = Compiler(vocabulary, encode)
        self._tokens = TokenText(vocabulary, encode)
        self._regular = RegularCompiler(vocabulary, encode, self._grammars)
        self._tags = TagCompiler(vocabulary, encode, self._grammars)

    @property
    def shared(self) -> tuple[object, ...]:
        """What compiled constraints refer to, and share: see ``Transfer``."""
        return (self._grammars, self._tokens, self._tags.tokens, *self._regular.shared)

    def compile(self, constraint: Constraint) -> Compiled:
        """Compiles; ``Refusal`` says what is malformed or cannot be enforced, and where."""
        if isinstance(constraint, JsonSchema):
            return compile_schema(constraint, self._grammars, self._tokens)
        if isinstance(constraint, Regex):
            return self._regular.regex(constraint.pattern)
        if isinstance(constraint, Choice):
            return self._regular.choice(constraint.options)
        if isinstance(constraint, StructuralTag):
            return self._tags.compile(constraint)
        if constraint.syntax == "lark":
            check_lark(constraint.text)
            return self._grammars.usable(self._grammars.lark(constraint.text))
        return self._ebnf(constraint.text)

    def _ebnf(self, text: str) -> Compiled:
        rules = read_grammar(text)
        grammar = self._grammars.lark(lark(rules))
        first = ebnf_reader(rules)
        if first is None:
            return grammar
        return ReadGrammar(grammar, EbnfReader.start(first, rules), self._tokens)
