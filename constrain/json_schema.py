"""JSON schemas compiled: a grammar that takes every right text, and a reader for the rest."""

from __future__ import annotations

import json
from typing import Any

from .blame import blamed
from .closing import Closer
from .ending_matcher import Ending, EndingMatcher
from .grammar import CompiledGrammar, Compiler
from .json_reader import JsonSchemaReader
from .plan import SchemaPlan, plan, relaxed
from .refusal import Refusal
from .spec import JsonSchema, Warning
from .token_text import TokenText
from .union import merged

MAX_RELAXED = 40
"""Times that a schema is loosened for what the engine cannot say of it."""


class JsonGrammar:
    """A schema that compiled. Gives matchers, and never changes."""

    __slots__ = ("_closer", "_first", "_grammar", "_plan", "_tokens")

    def __init__(self, grammar: CompiledGrammar, plan: SchemaPlan, tokens: TokenText) -> None:
        self._grammar = grammar
        self._plan = plan
        self._tokens = tokens
        self._closer = Closer(plan.exact)
        self._first: Ending | None = None
        self._first = self.matcher().ending()
        if self._first is None and plan.residue:
            raise Refusal("", "", "no value that satisfies the whole schema was found")

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self._grammar.engine

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """Keywords that are done without."""
        return self._plan.warnings

    def matcher(self) -> EndingMatcher:
        """A matcher at the start of the output."""
        reader = JsonSchemaReader(self._plan, self._closer)
        return EndingMatcher(self._grammar.matcher(), reader, self._tokens, self._first)


def compile_schema(constraint: JsonSchema, compiler: Compiler, tokens: TokenText) -> JsonGrammar:
    """Compiles a schema; ``Refusal`` says what is malformed or cannot be enforced, and where."""
    schema = _parsed(constraint.schema)
    grammar, made = enforced(schema, compiler, constraint)
    try:
        return JsonGrammar(grammar, made, tokens)
    except Refusal as refusal:

        def refused(part: Any) -> str | None:
            try:
                JsonGrammar(*enforced(part, compiler, constraint), tokens)
            except Refusal as error:
                return error.reason
            return None

        raise Refusal(*blamed(schema, made.exact, refusal.reason, refused)) from None


def enforced(
    schema: Any, compiler: Compiler, constraint: JsonSchema
) -> tuple[CompiledGrammar, SchemaPlan]:
    """A schema's plan and grammar: loosened until the engine takes it."""
    made = plan(schema, lenient=constraint.lenient)
    together = merged(made.engine)
    if together is not None:
        made = made._replace(engine=together, residue=True)
    for _ in range(MAX_RELAXED):
        try:
            return compiler.enforced(made.engine, constraint.whitespace), made
        except Refusal as refusal:
            looser = relaxed(made, refusal.reason)
            if looser is None:
                raise _placed(refusal, schema, made, compiler) from None
            made = looser
    raise Refusal("", "", "the schema is too far from what can be enforced")


def _placed(refusal: Refusal, schema: Any, made: SchemaPlan, compiler: Compiler) -> Refusal:
    """The engine's refusal with the place that it is about."""

    def refused(part: Any) -> str | None:
        try:
            compiler.enforced(plan(part).engine)
        except Refusal as error:
            return error.reason
        return None

    return Refusal(*blamed(schema, made.exact, refusal.reason, refused))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal("", "", f"the schema is not JSON: {error}") from error
