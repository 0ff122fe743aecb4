"""Constraints as they travel: what an output is to be held to, before anything is compiled.

Frozen and hashable, so that equal constraints compile once.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class JsonSchema(msgspec.Struct, frozen=True, tag="json_schema", kw_only=True, omit_defaults=True):
    """JSON that a schema takes. ``schema`` is the schema's own JSON text, its keys in order.

    ``lenient`` drops keywords that cannot be enforced, with a ``Warning`` each. Text is written
    with ``", "`` and ``": "`` between its parts; ``whitespace`` > 0 allows up to that many blanks
    and newlines wherever JSON does instead.
    """

    schema: str
    lenient: bool = False
    whitespace: int = 0


class Regex(msgspec.Struct, frozen=True, tag="regex"):
    """Text that a regular expression matches as a whole."""

    pattern: str


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """One of some texts."""

    options: tuple[str, ...]


class Grammar(msgspec.Struct, frozen=True, tag="grammar"):
    """Text of a context-free grammar: llama.cpp's GBNF (``ebnf``), or llguidance's ``lark``."""

    text: str
    syntax: Literal["ebnf", "lark"] = "ebnf"


class Tag(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``begin``, then JSON that ``schema`` (JSON text) takes, then ``end``."""

    begin: str
    schema: str
    end: str


class StructuralTag(
    msgspec.Struct, frozen=True, tag="structural_tag", kw_only=True, omit_defaults=True
):
    """Free text with tagged JSON in it.

    Once one of ``triggers`` is complete in free text, a run of tags must follow, of whose text it
    is the beginning (``prefix``, then the ``begin`` of a tag). A trigger that begins no run cannot
    be completed: it is not written at all. Without ``free_text`` nothing but tags may be written.
    ``at_least_one`` tag must come before the end; with ``stop_after_first`` the output ends after
    the first; with ``most`` > 0 a run has at most so many tags, and the text at most so many runs.
    Tags that follow each other directly are joined by ``separator``; the whole run of
    them is led by ``prefix`` and closed by ``suffix``. A control token's name anywhere in these
    texts (``<tool_call>`` in ``begin``) is that token, and in free text a trigger that is one is
    completed by that token alone.

    Refusals point to ``/tags/<index>/schema/...``.
    """

    tags: tuple[Tag, ...]
    triggers: tuple[str, ...]
    free_text: bool = True
    at_least_one: bool = False
    stop_after_first: bool = False
    prefix: str = ""
    separator: str = ""
    suffix: str = ""
    most: int = 0
    lenient: bool = False


Constraint = JsonSchema | Regex | Choice | Grammar | StructuralTag


class Warning(msgspec.Struct, frozen=True, kw_only=True):
    """A keyword that a lenient constraint does without. ``pointer`` is that of its schema."""

    pointer: str
    keyword: str
    reason: str
