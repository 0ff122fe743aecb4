"""Messages as clients send them, made into what templates are written for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ..errors import RequestError
from ..tool_calls import arguments_of

Message = dict[str, Any]
ContentForm = Literal["string", "parts"]
"""What a template takes as a message's ``content``."""

_OTHER_MEDIA = ("image_url", "image", "input_audio", "audio", "video_url", "video", "file")
_PART_FIELDS = ("type", "annotations", "cache_control")
"""Of text parts; the last two are other servers' and have no meaning here."""


def normalized(
    messages: Sequence[Mapping[str, Any]], form_of: Callable[[str, bool], ContentForm]
) -> list[Message]:
    """New messages with ``content`` in the form that the template takes for the role.

    ``form_of(role, listed)`` says which form, given the one that the client used. Text parts that
    have to become one string are joined with nothing between them, as templates that loop over
    parts do. Tool calls' ``arguments``, JSON text on the wire, become objects that templates print
    as they were spelt; text that is no JSON object stays text. An empty list of calls is none.
    ``RequestError`` with the path of whatever is malformed.
    """
    if not isinstance(messages, (list, tuple)) or not messages:
        raise RequestError("messages must be a list with at least one message", param="messages")
    return [_message(message, f"messages[{i}]", form_of) for i, message in enumerate(messages)]


def _message(
    message: Mapping[str, Any], path: str, form_of: Callable[[str, bool], ContentForm]
) -> Message:
    if not isinstance(message, Mapping):
        raise RequestError(f"{path} must be an object", param=path)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise RequestError(f"{path}.role must be a string", param=f"{path}.role")
    new = dict(message)
    texts = _texts(message, role, f"{path}.content")
    listed = isinstance(message.get("content"), (list, tuple))
    if form_of(role, listed) == "parts":
        new["content"] = [{"type": "text", "text": text} for text in texts]
    else:
        new["content"] = "".join(texts)
    if message.get("tool_calls") not in (None, []):
        new["tool_calls"] = _tool_calls(message["tool_calls"], f"{path}.tool_calls")
    else:
        new.pop("tool_calls", None)
    return new


def _texts(message: Mapping[str, Any], role: str, path: str) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    if isinstance(content, (list, tuple)):
        return [_part_text(part, f"{path}[{i}]") for i, part in enumerate(content)]
    if content is None and role == "assistant" and message.get("tool_calls"):
        return [""]
    raise RequestError(f"{path} must be a string or a list of text parts", param=path)


def _part_text(part: Any, path: str) -> str:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise RequestError(f'{path} must be an object with a "type"', param=path)
    kind = part["type"]
    if kind in _OTHER_MEDIA:
        raise RequestError(
            f"{path} is of type {kind!r}; this model reads text only", param=f"{path}.type"
        )
    if kind not in ("text", "refusal"):
        raise RequestError(f"{path} is of the unknown type {kind!r}", param=f"{path}.type")
    for name in part:
        if name not in (kind, *_PART_FIELDS):
            raise RequestError(
                f"{path} has the unknown field {name!r}; a part of type {kind!r} has {kind!r}",
                param=f"{path}.{name}",
            )
    text = part.get(kind)
    if not isinstance(text, str):
        raise RequestError(f"{path}.{kind} must be a string", param=f"{path}.{kind}")
    return text


def _tool_calls(calls: Any, path: str) -> list[Any]:
    if not isinstance(calls, (list, tuple)):
        raise RequestError(f"{path} must be a list", param=path)
    return [_tool_call(call, f"{path}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: Any, path: str) -> Message:
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        raise RequestError(f'{path} must be an object with a "function"', param=path)
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        function["arguments"] = arguments_of(arguments)
    return {**call, "function": function}
