"""What a user is told when a constraint cannot be held."""

from __future__ import annotations


class Refusal(ValueError):
    """A constraint that is malformed, or that cannot be enforced.

    ``pointer`` is the JSON pointer of the schema that holds ``keyword`` (for constraints that are
    not JSON schemas both are empty).
    """

    def __init__(self, pointer: str, keyword: str, reason: str) -> None:
        super().__init__(f"{pointer or '/'}: {keyword}: {reason}" if keyword else reason)
        self.pointer = pointer
        self.keyword = keyword
        self.reason = reason


class UnenforceableError(Refusal):
    """A keyword that is well-formed and cannot be enforced: a lenient constraint does without."""


class BusyError(Exception):
    """Too many constraints that take long wait to be compiled."""
