"""Reads JSON under a schema: whether it can still become right, and how it could end."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from .closing import Closer
from .evaluate import satisfies
from .json_text import JsonText, Mode, is_double
from .plan import SchemaPlan

_TRIES = 64
"""Endings whose documents are judged."""


class JsonSchemaReader:
    """A beginning of a JSON text under a schema. See ``ending_matcher.Reader``."""

    __slots__ = ("_closer", "_exact", "_plain", "_residue", "_state")

    def __init__(self, plan: SchemaPlan, closer: Closer, state: JsonText | None = None) -> None:
        self._exact = plan.exact
        self._closer = closer
        self._state = JsonText() if state is None else state
        self._plain: bool | None = None
        self._residue = plan.residue

    @property
    def state(self) -> JsonText:
        """Where in the text one is."""
        return self._state

    @property
    def exacting(self) -> bool:
        """Grammars do not know which names an object has already: a key may come to nothing."""
        return self._residue or self._state.mode is Mode.IN_KEY

    def feed(self, data: bytes) -> JsonSchemaReader:
        """After more text."""
        state = self._state.feed(data)
        if state.mode is Mode.NUMBER and not is_double(state.text[state.at :]):
            raise OverflowError("a number that no double can hold")
        other = JsonSchemaReader.__new__(JsonSchemaReader)
        other._exact, other._closer, other._state = self._exact, self._closer, state
        other._residue = self._residue
        other._plain = self._plain if state.at == self._state.at else None
        return other

    def endings(self) -> Iterator[bytes]:
        """Texts that would complete the document, and with which it satisfies the schema."""
        endings = self._closer.endings(self._state)
        if not self._residue:
            return endings
        return (text for text in itertools.islice(endings, _TRIES) if self._satisfied(text))

    def may_end(self) -> bool:
        """Whether the document satisfies the schema as it is."""
        return not self._residue or self._satisfied(b"")

    def _satisfied(self, ending: bytes) -> bool:
        try:
            value: Any = json.loads(self._state.text + ending)
        except ValueError:
            return False
        return satisfies(value, self._exact, self._exact)

    @property
    def may_be_cut(self) -> bool:
        """There is no free text."""
        return False

    def keeps(self, ending: bytes, before: object) -> bool:
        """Whether both are in one string that may be any text, and the document is right."""
        if not isinstance(before, JsonSchemaReader) or before._state.at != self._state.at:
            return False
        if not (self._state.in_free_text and before._state.in_free_text):
            return False
        if self._plain is None:
            self._plain = self._closer.in_plain_string(self._state)
        return self._plain and (not self._residue or self._satisfied(ending))
