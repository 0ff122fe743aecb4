"""Jinja as chat templates expect it: sandboxed, with a limit on time and size."""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Mapping
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import RequestError
from ..tool_calls import dumped, holds_arguments


class TemplateRefusalError(jinja2.TemplateError):
    """What a template says with ``raise_exception``."""


class _Clock(threading.local):
    deadline: float | None = None


class _Generation(jinja2.ext.Extension):
    """``{% generation %}`` marks what an assistant wrote, for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 - the name and type that Jinja prescribes

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The names and rules that templates of Hugging Face's are written for.

    A rendering that takes more than ``seconds``, or makes more than ``characters``, is a
    ``RequestError``. The time is looked at whenever a template reads an attribute, calls
    something, or writes; no loop can do much without.
    """

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, *, seconds: float, characters: int) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        self._seconds = seconds
        self._characters = characters
        self._clock = _Clock()
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = _strftime_now

    def limited(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """Renders within the limits; what a template raises is passed on."""
        self._clock.deadline = time.monotonic() + self._seconds
        pieces, size = [], 0
        try:
            for piece in template.generate(**variables):
                self._check_time()
                size += len(piece)
                if size > self._characters:
                    raise _too_much(f"makes more than {self._characters} characters")
                pieces.append(piece)
        finally:
            self._clock.deadline = None
        return "".join(pieces)

    def _check_time(self) -> None:
        deadline = self._clock.deadline
        if deadline is not None and time.monotonic() > deadline:
            raise _too_much(f"takes more than {self._seconds:g} seconds")

    def getattr(self, obj: Any, attribute: str) -> Any:
        self._check_time()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self._check_time()
        return super().getitem(obj, argument)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._check_time()
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Only multiplication comes here: neither text nor numbers may be made enormous."""
        self._check_time()
        for text, times in ((left, right), (right, left)):
            sized = isinstance(text, (str, list, tuple)) and isinstance(times, int)
            if sized and len(text) * times > self._characters:
                raise _too_much(f"makes more than {self._characters} characters")
        if operator == "**":
            raise TemplateRefusalError("powers are not available in chat templates")
        return super().call_binop(context, operator, left, right)


def _too_much(what: str) -> RequestError:
    return RequestError(f"the chat template {what} of these messages", param="messages")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, which a prompt is not.
    as_spelt = not (ensure_ascii or indent or separators or sort_keys)
    if as_spelt and holds_arguments(value):
        return dumped(value)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _refuse(message: Any) -> None:
    raise TemplateRefusalError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
