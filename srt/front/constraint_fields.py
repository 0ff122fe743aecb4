"""What clients may send to have an output constrained."""

from __future__ import annotations

from typing import Literal

import msgspec

from .held import OnBudget
from .json_text import ABSENT
from .tags import Structure


class JsonSchemaFormat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``response_format.json_schema``. Every schema is enforced, whatever ``strict`` says."""

    name: str
    schema: msgspec.Raw = ABSENT
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``response_format``: which other fields belong to it depends on ``type``."""

    type: str
    json_schema: JsonSchemaFormat | None = None
    structures: list[Structure] | None = None
    triggers: list[str] | None = None
    format: msgspec.Raw = ABSENT


class GrammarDefinition(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A grammar with its dialect, under the names of OpenAI's custom tools."""

    syntax: Literal["ebnf", "lark"]
    definition: str


GrammarField = str | GrammarDefinition


class ConstraintFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The constraints that all generating routes take, and how they are held."""

    json_schema: msgspec.Raw = ABSENT
    regex: str | None = None
    choice: list[str] | None = None
    ebnf: str | None = None
    grammar: GrammarField | None = None
    structural_tag: msgspec.Raw = ABSENT
    lenient: bool | None = None
    whitespace: int | None = None
    on_budget: OnBudget | None = None


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """vLLM's ``structured_outputs``: exactly one of these."""

    json: msgspec.Raw = ABSENT
    regex: str | None = None
    choice: list[str] | None = None
    grammar: GrammarField | None = None
    json_object: bool | None = None
    structural_tag: msgspec.Raw = ABSENT


class OpenAIConstraintFields(ConstraintFields, forbid_unknown_fields=True, kw_only=True):
    """What the OpenAI routes take beside those: OpenAI's own way, and vLLM's."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: msgspec.Raw = ABSENT
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: GrammarField | None = None
