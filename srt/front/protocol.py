"""Reading request bodies: strict types, unknown fields refused by name, errors that say where."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from ..errors import RequestError

T = TypeVar("T", bound=msgspec.Struct)

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `(.*)`)?$", re.DOTALL)
_AT = re.compile(r"^(.*) - at `(?:key` in `)?([^`]*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `(.*)`)?$", re.DOTALL)
_NULL_TYPE = re.compile(r" \| null`|`null \| ")

NOT_YET: dict[str, str] = {
    "functions": "functions are not supported; they are OpenAI's older form of tools",
    "function_call": "functions are not supported; they are OpenAI's older form of tools",
    "stop_regex": "stop patterns are not supported; `stop` takes strings",
    "audio": "this model writes text only",
    "modalities": "this model writes text only",
    "suffix": "text cannot be inserted before a suffix",
    "best_of": "only as many samples as are returned are drawn: `best_of` must equal `n`",
    "custom_logit_processor": "code in requests is not run",
    "logits_processors": "code in requests is not run",
    "custom_params": "there are no custom logit processors to take them",
    "guided_whitespace_pattern": "the field `whitespace` says how many blanks JSON may have",
    "guided_decoding_backend": "the engine is chosen by the kind of the constraint",
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


MISPLACED: dict[str, str] = {
    "schema": "a schema goes into `response_format.json_schema.schema`, or into `json_schema`",
    "strict": "it goes into `response_format.json_schema`; every schema is enforced without it too",
}
"""Where fields belong that are often sent to the wrong place."""


def decode(body: bytes, kind: type[T], path: str = "") -> T:
    """A request's body, or the part of it at ``path``, as a struct. ``RequestError`` 400 that names
    the field at fault."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _explained(str(error), kind, path) from error
    except RecursionError:
        raise RequestError(
            f"{path or 'the body'} is nested too deeply", param=path or None, code="invalid_json"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(
            f"{path or 'the body'} is not JSON: {error}", param=path or None, code="invalid_json"
        ) from error


def missing(path: str) -> RequestError:
    """For a field that must be there."""
    return RequestError(f"{path} is missing", param=path, code="missing_parameter")


def filled(text: str, path: str) -> str:
    """A text that must not be empty."""
    if not text:
        raise RequestError(f"{path} is empty", param=path)
    return text


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
    if name == "function_call":
        return value in ("none", "auto")  # without functions both mean none
    return bool(name == "modalities" and value == ["text"])


def _explained(text: str, kind: type[msgspec.Struct], root: str) -> RequestError:
    unknown = _UNKNOWN.match(text)
    if unknown is not None:
        return _unknown_field(unknown[1], _path(unknown[2] or "$"), kind, root)
    absent = _MISSING.match(text)
    if absent is not None:
        return missing(_joined(root, _joined(_path(absent[2] or "$"), absent[1])))
    at = _AT.match(text)
    message, path = (at[1], _path(at[2])) if at is not None else (text, "")
    message = message[:1].lower() + _NULL_TYPE.sub("`", message)[1:]
    if message.startswith("invalid enum value"):
        message += f"; it must be one of {_literals_at(kind, path)}"
    full = _joined(root, path)
    return RequestError(f"{full or 'the body'}: {message}", param=full or None)


def _unknown_field(name: str, path: str, kind: type[msgspec.Struct], root: str) -> RequestError:
    full = _joined(root, _joined(path, name))
    if name in NOT_YET:
        return RequestError(f"{full}: {NOT_YET[name]}", param=full, code="unsupported_parameter")
    near = difflib.get_close_matches(name, _fields_at(kind, path), 1, cutoff=0.0)
    hint = f"; the nearest known one is {near[0]!r}" if near else ""
    if name in MISPLACED:
        hint = f": {MISPLACED[name]}"
    return RequestError(f"unknown field {full!r}{hint}", param=full, code="unknown_parameter")


def _joined(path: str, name: str) -> str:
    if not path or not name:
        return path or name
    return path + name if name.startswith("[") else f"{path}.{name}"


def _path(path: str) -> str:
    """``$.messages[0].content`` as ``messages[0].content``; the name of any key is left out."""
    return path.removeprefix("$").removeprefix(".").replace("[...]", "")


def _fields_at(kind: type[msgspec.Struct], path: str) -> tuple[str, ...]:
    """Names of the fields that an object at a path may have."""
    inner = _struct_in(_type_at(kind, path))
    return () if inner is None else tuple(f.encode_name for f in msgspec.structs.fields(inner))


def _literals_at(kind: type[msgspec.Struct], path: str) -> str:
    """The values that a field at a path may have, where they are few."""
    return ", ".join(f"`{value}`" for value in _literals(_type_at(kind, path)))


def _type_at(kind: type[msgspec.Struct], path: str) -> Any:
    """The type of the field at a path; ``None`` where there is none."""
    found: Any = kind
    for part in filter(None, re.split(r"\[\d*\]|\.", path)):
        inner = _struct_in(found)
        fields = () if inner is None else msgspec.structs.fields(inner)
        found = {f.encode_name: f.type for f in fields}.get(part)
    return found


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    found = (_struct_in(part) for part in get_args(annotation))
    return next((part for part in found if part is not None), None)


def _literals(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return [value for part in get_args(annotation) for value in _literals(part)]
