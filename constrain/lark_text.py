"""What users' grammars in llguidance's dialect of Lark may not do.

The engine reads no files and nothing remote. But it takes JSON schemas within a grammar, under
options of their own that drop what it cannot enforce, and control tokens, even those that end the
output: both have constraints of their own, where they are checked.
"""

from __future__ import annotations

import re

from .refusal import Refusal

MAX_LENGTH = 1_000_000

_PIECE = re.compile(
    r"""
    (?P<quiet> "(?:\\.|[^"\\\n])*" | //[^\n]* | \#[^\n]* | /(?:\\.|[^/\\])+/ )
    | (?P<json> %json | %llguidance | %lark )
    | (?P<token> <\[ | <\| | <[A-Za-z_/] )
    """,
    re.VERBOSE,
)
_REASONS = {
    "json": "is not taken in a grammar: JSON schemas are constraints of their own",
    "token": "control tokens are not taken in a grammar: structural tags have them",
}


def check_lark(text: str) -> None:
    """Raises ``Refusal``, with line and column, for what is not taken."""
    if len(text) > MAX_LENGTH:
        raise Refusal("", "", f"the grammar has more than {MAX_LENGTH} characters")
    for piece in _PIECE.finditer(text):
        kind = piece.lastgroup
        if kind in _REASONS:
            line = text.count("\n", 0, piece.start()) + 1
            column = piece.start() - text.rfind("\n", 0, piece.start())
            reason = f"line {line}, column {column}: {piece[0]!r}: {_REASONS[kind]}"
            raise Refusal("", "", reason)
