"""Which format a model calls tools in: as its chat template does, or as the command line says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .format import CallFormat, Message
from .hermes import Hermes
from .llama3 import Llama3
from .mistral import Mistral
from .plain import Plain
from .tool import Tool

FORMATS = ("auto", "hermes", "llama3", "mistral", "plain")

Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]] | None], str | None]
"""A template's text for messages and tools; ``None`` where it refuses them."""

_TOOL = Tool("probe_fn", "probes", '{"type": "object", "properties": {"p": {"type": "integer"}}}')
_ARGUMENTS = '{"p": 1}'
_ASKED: Message = {"role": "user", "content": "hello"}


def chosen_format(name: str, render: Render) -> CallFormat:
    """The format of a name. For ``auto`` it is the one in which the model's own template writes a
    call, to the character: then what the model writes is found again in the next turn. Where there
    is none, tools are told of in our own words."""
    known: list[CallFormat] = [Hermes(), Mistral(), Mistral(tight=True), Llama3()]
    fitting = [each for each in known if name in ("auto", each.name) and _fits(each, render)]
    named = [each for each in known if each.name == name]
    return next(iter([*fitting, *named]), None) or Plain(takes_system=_takes_system(render))


def _fits(form: CallFormat, render: Render) -> bool:
    """Whether a template tells of a tool, and writes a call as the format does."""
    call = {
        "id": form.call_id("probe"),
        "type": "function",
        "function": {"name": _TOOL.name, "arguments": {"p": 1}},
    }
    answered: Message = {"role": "assistant", "content": "", "tool_calls": [call]}
    result: Message = {"role": "tool", "content": "done", "tool_call_id": call["id"]}
    text = render([_ASKED, answered, result], [_TOOL.shown()])
    told = render([_ASKED], [_TOOL.shown()])
    layout = form.layout
    (begin,) = layout.begins([_TOOL.name], forced=True)
    written = layout.prefix + begin + _ARGUMENTS
    return text is not None and written in text and told is not None and _TOOL.name in told


def _takes_system(render: Render) -> bool:
    text = render([{"role": "system", "content": "wq1zv"}, _ASKED], None)
    return text is not None and "wq1zv" in text
