"""Reading request bodies: strict types, unknown fields refused by name, errors that say where."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, TypeVar, get_args

import msgspec

from ..errors import RequestError

T = TypeVar("T", bound=msgspec.Struct)

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `(.*)`)?$", re.DOTALL)
_AT = re.compile(r"^(.*) - at `(?:key` in `)?([^`]*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `(.*)`)?$", re.DOTALL)
_NULL_TYPE = re.compile(r" \| null`|`null \| ")

NOT_YET: dict[str, str] = {
    "tools": "tools are not supported",
    "tool_choice": "tools are not supported",
    "functions": "functions are not supported; they are OpenAI's older form of tools",
    "function_call": "functions are not supported; they are OpenAI's older form of tools",
    "response_format": "only the response format `text` is supported",
    "json_schema": "constrained output is not supported",
    "regex": "constrained output is not supported",
    "ebnf": "constrained output is not supported",
    "structural_tag": "constrained output is not supported",
    "structured_outputs": "constrained output is not supported",
    "guided_json": "constrained output is not supported",
    "guided_regex": "constrained output is not supported",
    "guided_choice": "constrained output is not supported",
    "guided_grammar": "constrained output is not supported",
    "stop_regex": "stop patterns are not supported; `stop` takes strings",
    "audio": "this model writes text only",
    "modalities": "this model writes text only",
    "suffix": "text cannot be inserted before a suffix",
    "best_of": "only as many samples as are returned are drawn: `best_of` must equal `n`",
    "custom_logit_processor": "code in requests is not run",
    "logits_processors": "code in requests is not run",
    "custom_params": "there are no custom logit processors to take them",
    "use_beam_search": "beam search is not supported",
    "lora_path": "adapters are not supported",
    "image_data": "this model reads text only",
    "audio_data": "this model reads text only",
    "video_data": "this model reads text only",
    "input_embeds": "prompts are text or token ids",
    "session_params": "sessions are not needed: prefixes are found in the cache by themselves",
    "return_hidden_states": "hidden states are not returned",
    "token_ids_logprob": "log-probabilities of chosen ids are not supported",
    "web_search_options": "there is no web search",
    "moderation": "answers are not moderated",
    "chat_template": "a template in a request is not run; start the server with one",
}
"""Parameters that would change the answer and have no effect here yet: refused where they are set.
This table and ``refuse_unsupported`` are the one place to open when one of them is built."""


def decode(body: bytes, kind: type[T]) -> T:
    """A request's body as a struct. ``RequestError`` 400 that names the field at fault."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), kind) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}", code="invalid_json") from error


def refuse_unsupported(body: msgspec.Struct, names: Iterable[str], where: str = "") -> None:
    """``RequestError`` for the first of the named fields that asks for something."""
    for name in names:
        value = getattr(body, name)
        if value is None or value is False or value in ("", [], {}) or _harmless(name, value):
            continue
        raise RequestError(
            f"{where}{name}: {NOT_YET[name]}", param=f"{where}{name}", code="unsupported_parameter"
        )


def _harmless(name: str, value: Any) -> bool:
    """Values that ask for what happens anyway."""
    if name == "response_format":
        return bool(value == {"type": "text"})
    if name in ("tool_choice", "function_call"):
        return value in ("none", "auto")  # without tools both mean none
    return bool(name == "modalities" and value == ["text"])


def _explained(text: str, kind: type[msgspec.Struct]) -> RequestError:
    unknown = _UNKNOWN.match(text)
    if unknown is not None:
        return _unknown_field(unknown[1], _path(unknown[2] or "$"), kind)
    missing = _MISSING.match(text)
    if missing is not None:
        full = _joined(_path(missing[2] or "$"), missing[1])
        return RequestError(f"{full} is missing", param=full, code="missing_parameter")
    at = _AT.match(text)
    message, path = (at[1], _path(at[2])) if at is not None else (text, "")
    message = message[:1].lower() + _NULL_TYPE.sub("`", message)[1:]
    where = path or "the body"
    return RequestError(f"{where}: {message}", param=path or None)


def _unknown_field(name: str, path: str, kind: type[msgspec.Struct]) -> RequestError:
    full = _joined(path, name)
    if name in NOT_YET:
        return RequestError(f"{full}: {NOT_YET[name]}", param=full, code="unsupported_parameter")
    near = difflib.get_close_matches(name, _fields_at(kind, path), 1, cutoff=0.0)
    hint = f"; the nearest known one is {near[0]!r}" if near else ""
    return RequestError(f"unknown field {full!r}{hint}", param=full, code="unknown_parameter")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _path(path: str) -> str:
    """``$.messages[0].content`` as ``messages[0].content``; the name of any key is left out."""
    return path.removeprefix("$").removeprefix(".").replace("[...]", "")


def _fields_at(kind: type[msgspec.Struct], path: str) -> tuple[str, ...]:
    """Names of the fields that an object at a path may have."""
    for part in filter(None, re.split(r"\[\d*\]|\.", path)):
        types = {f.encode_name: f.type for f in msgspec.structs.fields(kind)}
        inner = _struct_in(types.get(part))
        if inner is None:
            return ()
        kind = inner
    return tuple(f.encode_name for f in msgspec.structs.fields(kind))


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    found = (_struct_in(part) for part in get_args(annotation))
    return next((part for part in found if part is not None), None)
