"""Structural tags compiled: one grammar for free text and tags, and a reader that knows both."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .closing import Closer
from .ending_matcher import Ending, EndingMatcher
from .grammar import CompiledGrammar, Compiler
from .json_reader import JsonSchemaReader
from .json_schema import JsonGrammar, enforced
from .refusal import Refusal
from .spec import JsonSchema, StructuralTag, Warning
from .tag_plan import lark, mark, parts, tag_plan
from .tag_reader import TaggedJson, TagReader
from .token_text import TokenText
from .vocabulary import Vocabulary

Encode = Callable[[str], Sequence[int]]


class MarkedText(TokenText):
    """Between tokens and bytes, where control tokens are marked among text (``tag_plan.mark``)."""

    __slots__ = ("_marks",)

    def __init__(self, vocabulary: Vocabulary, encode: Encode) -> None:
        super().__init__(vocabulary, encode)
        self._marks = {token: mark(token) for token in vocabulary.special_ids}

    def bytes_of(self, token: int) -> bytes:
        """What a token adds to the output: text, or its mark."""
        return self._marks.get(token) or super().bytes_of(token)

    def tokens(self, text: bytes) -> Sequence[int]:
        """Tokens with exactly these bytes, and marked tokens between them."""
        found: list[int] = []
        for part in parts(text):
            found += [part] if isinstance(part, int) else super().tokens(part)
        return found


class TagGrammar:
    """A structural tag that compiled. Gives matchers, and never changes."""

    __slots__ = ("_first", "_grammar", "_reader", "_tokens", "_warnings")

    def __init__(
        self,
        grammar: CompiledGrammar,
        reader: TagReader,
        tokens: MarkedText,
        warnings: tuple[Warning, ...],
    ) -> None:
        self._grammar = grammar
        self._reader = reader
        self._tokens = tokens
        self._warnings = warnings
        self._first: Ending | None = None
        self._first = self.matcher().ending()
        if self._first is None:
            raise Refusal("", "", "no output that fits was found")

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self._grammar.engine

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """Keywords of the tags' schemas that are done without."""
        return self._warnings

    def matcher(self) -> EndingMatcher:
        """A matcher at the start of the output."""
        return EndingMatcher(self._grammar.matcher(), self._reader, self._tokens, self._first)


class TagCompiler:
    """Compiles structural tags for one vocabulary. Safe to use from several threads."""

    __slots__ = ("_compiler", "_vocabulary", "tokens")

    def __init__(self, vocabulary: Vocabulary, encode: Encode, compiler: Compiler) -> None:
        self._vocabulary = vocabulary
        self._compiler = compiler
        self.tokens = MarkedText(vocabulary, encode)

    def compile(self, constraint: StructuralTag) -> TagGrammar:
        """Compiles; ``Refusal`` points to what is malformed or cannot be enforced."""
        plan = tag_plan(constraint, self._vocabulary)
        read: dict[str, _Schema] = {}
        tagged, warnings = [], []
        for i, tag in enumerate(constraint.tags):
            try:
                if tag.schema not in read:
                    read[tag.schema] = self._schema(tag.schema, constraint.lenient)
            except Refusal as refusal:
                pointer = f"/tags/{i}/schema{refusal.pointer}"
                raise Refusal(pointer, refusal.keyword, refusal.reason) from None
            tagged.append(read[tag.schema])
            warnings += [_placed(each, i) for each in tagged[-1].warnings]
        grammar = self._compiler.lark(lark(plan, [each.engine for each in tagged]))
        reader = TagReader(plan, [each.json for each in tagged])
        return TagGrammar(grammar, reader, self.tokens, tuple(warnings))

    def _schema(self, text: str, lenient: bool) -> _Schema:
        try:
            schema: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Refusal("", "", f"the schema is not JSON: {error}") from error
        held = JsonSchema(schema=text, lenient=lenient)
        grammar, plan = enforced(schema, self._compiler, held)
        least = JsonGrammar(grammar, plan, self.tokens).matcher().ending()
        if least is None:
            raise Refusal("", "", "no value of it was found")
        reader = JsonSchemaReader(plan, Closer(plan.exact))
        tagged = TaggedJson(reader=reader, least=least.text, exacting=plan.residue)
        return _Schema(plan.engine, tagged, plan.warnings)


class _Schema(NamedTuple):
    """A tag's schema: in the engine's dialect, and as it is read."""

    engine: Any
    json: TaggedJson
    warnings: tuple[Warning, ...]


def _placed(warning: Warning, tag: int) -> Warning:
    return Warning(
        pointer=f"/tags/{tag}/schema{warning.pointer}",
        keyword=warning.keyword,
        reason=warning.reason,
    )
