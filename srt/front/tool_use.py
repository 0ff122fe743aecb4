"""From a request's tools to what its answer may call, and what holds it to that."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sapwood.constrain.spec import JsonSchema

from ..errors import RequestError
from ..tool_calls import CallFormat, CallReader, Layout, Tool, ToolUse
from .bodies import ChatBody, TokenizeBody
from .held import Held
from .json_text import is_given, schema_text
from .tool_fields import ChoiceField, FunctionField, ToolField

MAX_TOOLS = 128
"""Functions in one request, as OpenAI has it."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Tools(NamedTuple):
    """The tools of a request: all that are shown, those that may be called (all, or the one that
    is named), and how the model calls them. With ``or_json`` an answer is one call or else JSON."""

    shown: tuple[Tool, ...]
    callable: tuple[Tool, ...]
    use: ToolUse
    format: CallFormat
    paths: tuple[str, ...]
    or_json: bool = False

    @property
    def layout(self) -> Layout:
        """How calls are written."""
        layout = self.format.layout
        return layout.beside_json() if self.or_json else layout

    def beside(self, other: Held | None) -> tuple[Tools, Held]:
        """The same, and what holds answers to the calls that may be made and to a constraint of
        the request's own. ``RequestError`` for one that does not go with calls."""
        if other is None:
            return self, self._held(None)
        if self.use.mode == "none":
            return self, other
        if not isinstance(other.constraint, JsonSchema):
            raise RequestError(
                f"{other.path} does not go with tools that may be called; JSON schemas do",
                param=other.path,
            )
        if self.use.forced:
            return self, self._held(None)  # there is nothing but calls
        tools = self._replace(or_json=True)
        return tools, tools._held(other)

    def _held(self, answer: Held | None) -> Held:
        schema = None
        if answer is not None and isinstance(answer.constraint, JsonSchema):
            schema = answer.constraint.schema
        constraint = self.layout.constraint(self.callable, self.use, schema)
        last = () if answer is None else (answer.path,)
        each = (len(constraint.tags) - len(last)) // len(self.callable)
        paths = (path for path in self.paths for _ in range(each))
        return Held(constraint, "tools", tags=(*paths, *last))

    def marks(self, specials: Mapping[str, int]) -> tuple[int, ...]:
        """Which special tokens calls are written with: the reader must see them."""
        layout = self.format.layout
        written = [layout.run([("f", "{}")]), *layout.heads, *layout.triggers]
        return tuple(
            token for name, token in specials.items() if any(name in text for text in written)
        )

    def reader(self) -> CallReader | None:
        """What reads the calls of one answer; ``None`` where none may be made."""
        if self.use.mode == "none":
            return None
        names = [tool.name for tool in self.callable]
        return CallReader(self.layout, names, forced=self.use.forced or self.or_json)


def read_tools(body: ChatBody | TokenizeBody, format: CallFormat) -> Tools | None:
    """The tools of a request; ``None`` where it has none. ``RequestError`` for ones that are
    malformed, and for a choice that they do not offer."""
    given = body.tools or []
    if len(given) > MAX_TOOLS:
        raise RequestError(
            f"tools has {len(given)} entries; the most is {MAX_TOOLS}", param="tools"
        )
    functions = [_function(tool, f"tools[{i}]") for i, tool in enumerate(given)]
    tools = tuple(_tool(each, f"tools[{i}].function") for i, each in enumerate(functions))
    _check_unique(tools)
    use, named = _use(body, tools) if isinstance(body, ChatBody) else (ToolUse("auto"), None)
    if not tools:
        return None
    chosen = [i for i, tool in enumerate(tools) if named in (None, tool.name)]
    return Tools(
        tools,
        tuple(tools[i] for i in chosen),
        use,
        format,
        tuple(f"tools[{i}].function.parameters" for i in chosen),
    )


def _function(tool: ToolField, path: str) -> FunctionField:
    if tool.type != "function":
        raise RequestError(
            f"{path}.type is {tool.type[:64]!r}; only tools of the type `function` can be called",
            param=f"{path}.type",
        )
    if tool.custom is not None:
        raise RequestError(f"{path}.custom goes with another type", param=f"{path}.custom")
    if tool.function is None:
        raise RequestError(
            f"{path}.function is missing", param=f"{path}.function", code="missing_parameter"
        )
    return tool.function


def _tool(function: FunctionField, path: str) -> Tool:
    if not _NAME.fullmatch(function.name):
        raise RequestError(
            f"{path}.name is {function.name[:80]!r}; it must have 1 to 64 letters, digits, `_` "
            "or `-`",
            param=f"{path}.name",
        )
    schema = None
    if is_given(function.parameters):
        schema = _schema(function, f"{path}.parameters")
    return Tool(function.name, function.description, schema)


def _schema(function: FunctionField, path: str) -> str:
    text = schema_text(function.parameters, path)
    if text == "false":
        raise RequestError(
            f"{path} takes no arguments at all, not even an empty object", param=path
        )
    kind = "object" if text == "true" else json.loads(text).get("type", "object")
    if kind != "object":
        raise RequestError(
            f'{path}.type is {json.dumps(kind)[:64]}; arguments are always an "object"',
            param=f"{path}/type",
        )
    return "{}" if text == "true" else text


def _check_unique(tools: Sequence[Tool]) -> None:
    seen: dict[str, int] = {}
    for i, tool in enumerate(tools):
        if tool.name in seen:
            raise RequestError(
                f"tools[{i}] has the name {tool.name!r} of tools[{seen[tool.name]}]",
                param=f"tools[{i}].function.name",
            )
        seen[tool.name] = i


def _use(body: ChatBody, tools: Sequence[Tool]) -> tuple[ToolUse, str | None]:
    """What may be called, and the function that must be where one is named."""
    single = body.parallel_tool_calls is False
    choice = body.tool_choice
    if isinstance(choice, ChoiceField):
        return ToolUse("named", single=True), _named(choice, tools)
    if choice == "required" and not tools:
        raise _without_tools("`required`")
    return ToolUse(choice or "auto", single), None


def _named(choice: ChoiceField, tools: Sequence[Tool]) -> str:
    if choice.type != "function" or choice.function is None:
        what = f"of the type {choice.type[:64]!r}" if choice.type != "function" else "no function"
        raise RequestError(
            f"tool_choice is {what}; it must be `none`, `auto`, `required`, or name a function: "
            '{"type": "function", "function": {"name": ...}}',
            param="tool_choice.type" if choice.type != "function" else "tool_choice.function",
        )
    name = choice.function.name
    if not tools:
        raise _without_tools("a function")
    if all(tool.name != name for tool in tools):
        known = ", ".join(repr(tool.name) for tool in tools[:8])
        raise RequestError(
            f"tool_choice names the function {name[:64]!r}, which is not among the tools: {known}",
            param="tool_choice.function.name",
        )
    return name


def _without_tools(what: str) -> RequestError:
    return RequestError(f"tool_choice is {what}, but the request has no tools", param="tool_choice")
