"""A form of our own telling, for models whose template knows no tools.

Calls are written as Hermes models do it. The system's text says what there is and how to call it;
earlier calls are the assistant's text, and results the user's.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from .arguments import Arguments, arguments_of, dumped
from .format import Message, openai_id
from .hermes import LAYOUT
from .layout import Layout
from .tool import Tool

_INTRODUCTION = """You can call functions. These are the functions, each with the JSON schema of \
its parameters:
<tools>
{tools}
</tools>
To call a function, write its name and its arguments like this:
<tool_call>
{{"name": "function name", "arguments": {{"parameter": "value"}}}}
</tool_call>
Its result is then given to you."""

_RESULT = "The function returned:\n"
_GO_ON = "\nNow answer the question."
"""Said after results, once: small models would go on with the conversation's form instead."""


class Plain:
    """Rewrites a conversation with tools into one without. ``takes_system``: the template has a
    system role; without one, the introduction leads the first user message."""

    name = "plain"
    layout: ClassVar[Layout] = LAYOUT
    in_template = False

    def __init__(self, *, takes_system: bool = True) -> None:
        self._takes_system = takes_system

    def call_id(self, key: str) -> str:
        """OpenAI's form."""
        return openai_id(key)

    def messages(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        """With an introduction of the tools, and calls and results as text."""
        rewritten = _with_results_joined(self._message(message) for message in messages)
        return self._introduced(rewritten, tools) if tools else rewritten

    def _message(self, message: Message) -> Message:
        if message.get("role") == "tool":
            return {"role": "tool", "content": _joined(_RESULT, message.get("content"), "")}
        calls = message.get("tool_calls")
        if message.get("role") != "assistant" or not isinstance(calls, list) or not calls:
            return message
        run = self.layout.run([_written(call) for call in calls])
        content = message.get("content")
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**rest, "content": _joined(content, run, "\n") if content else run}

    def _introduced(self, messages: list[Message], tools: Sequence[Tool]) -> list[Message]:
        text = introduction(tools)
        first = messages[0] if messages else {}
        if first.get("role") in ("system", "developer") and self._takes_system:
            content = _joined(first.get("content"), text, "\n\n")
            return [{**first, "content": content}, *messages[1:]]
        if self._takes_system:
            return [{"role": "system", "content": text}, *messages]
        for i, message in enumerate(messages):
            if message.get("role") == "user":
                content = _joined(text, message.get("content"), "\n\n")
                return [*messages[:i], {**message, "content": content}, *messages[i + 1 :]]
        return [{"role": "user", "content": text}, *messages]


def introduction(tools: Sequence[Tool]) -> str:
    """What a model is told of tools that its template does not tell it of."""
    return _INTRODUCTION.format(tools="\n".join(dumped(tool.shown()["function"]) for tool in tools))


def _written(call: Any) -> tuple[str, str]:
    """Name and arguments of a call; whatever is malformed is reported by who checks messages."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "", "{}"
    given = function.get("arguments")
    arguments = arguments_of(given) if isinstance(given, str) else given
    text = arguments.text if isinstance(arguments, Arguments) else arguments
    return str(function.get("name", "")), text if isinstance(text, str) else dumped(text or {})


def _with_results_joined(messages: Iterable[Message]) -> list[Message]:
    """Results as user messages; those that follow each other are one."""
    out: list[Message] = []
    for is_result, run in itertools.groupby(messages, lambda each: each.get("role") == "tool"):
        if is_result:
            contents = [message["content"] for message in run]
            results = functools.reduce(lambda one, other: _joined(one, other, "\n"), contents)
            out.append({"role": "user", "content": _joined(results, _GO_ON, "")})
        else:
            out += run
    return out


def _joined(first: Any, second: Any, between: str) -> Any:
    """Two contents as one: a string, or a list of parts where either is one."""
    if isinstance(first, str) and isinstance(second, str):
        return first + between + second
    return [*_parts(first), *_parts(between), *_parts(second)]


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, list) else [] if content is None else [content]
