"""A function that a model may call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

NO_ARGUMENTS = '{"type": "object", "properties": {}, "additionalProperties": false}'
"""What a function takes that names no parameters: OpenAI's empty parameter list."""


class Tool(NamedTuple):
    """A function: ``schema`` is the JSON text of its parameters' schema, as the client wrote it;
    ``None`` where it has none."""

    name: str
    description: str | None = None
    schema: str | None = None

    @property
    def held_to(self) -> str:
        """The schema that arguments are held to: they are always an object."""
        if self.schema is None:
            return NO_ARGUMENTS
        fields = json.loads(self.schema)
        if "type" in fields:
            return self.schema
        rest = self.schema.strip().removeprefix("{")  # the text stays: its numbers, its order
        return '{"type": "object"' + (", " if fields else "") + rest

    def shown(self) -> Mapping[str, Any]:
        """What chat templates are given: OpenAI's shape, without what is not for the model."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        if self.schema is not None:
            function["parameters"] = json.loads(self.schema)
        return {"type": "function", "function": function}
