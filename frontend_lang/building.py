"""``gen``, ``select`` and the roles: what a program writes between its texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from .choices import ChoicesMethod, token_length_normalized
from .expressions import Begin, End, Expression, Gen, Select, leaves
from .expressions import Sequence as Joined
from .schemas import shape

AFTER_FLOAT = tuple(" \n\t,;:!?)]}\"'%")
AFTER_INTEGER = (".", *AFTER_FLOAT)
"""Where a number ends: what may follow it, and is cut off. Held to digits alone, a model that
would go on with text could only write more of them."""


def _followed(number: str, ends: Sequence[str]) -> str:
    return rf"{number}([{re.escape(''.join(ends))}](.|\n)*)?"


INTEGER = _followed(r"[-+]?[0-9]{1,18}", AFTER_INTEGER)
FLOAT = _followed(r"[-+]?[0-9]{1,15}(\.[0-9]{1,15})?", AFTER_FLOAT)
STRING = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"'
BOOLEAN = r"(True|False)"


class SamplingOptions(TypedDict, total=False):
    """What ``gen`` takes besides its first parameters; the server's names.

    ``None`` is "as the run says".
    """

    repetition_penalty: float | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    skip_special_tokens: bool | None
    no_stop_trim: bool | None
    ebnf: str | None
    grammar: str | Mapping[str, str] | None
    structural_tag: Mapping[str, Any] | str | None
    lenient: bool | None
    whitespace: int | None
    on_budget: str | None
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    cache_salt: str | None
    priority: int | None


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: ChoicesMethod | None = None,
    regex: str | None = None,
    json_schema: Any = None,
    **more: Unpack[SamplingOptions],
) -> Expression:
    """The model's text; ``name`` is the variable that holds it.

    What is not given is as the run says. ``choices`` makes a ``select`` of it. ``dtype`` is
    ``int``, ``float``, ``str`` or ``bool``. ``json_schema`` is a schema, or a type: then the
    variable's value is an instance of it. At most one constraint: ``ValueError`` for two.
    """
    unknown = set(more) - SamplingOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"gen() got an unknown parameter {min(unknown)!r}")
    given: dict[str, Any] = {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "n": n,
        "stop": stop,
        "stop_token_ids": stop_token_ids,
        "stop_regex": stop_regex,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "ignore_eos": ignore_eos,
        "return_logprob": return_logprob,
        "logprob_start_len": logprob_start_len,
        "top_logprobs_num": top_logprobs_num,
        "return_text_in_logprobs": return_text_in_logprobs,
        "regex": regex,
        **more,
    }
    held = {"choices": choices, "dtype": dtype, "json_schema": json_schema, "regex": regex}
    held |= {key: more.get(key) for key in ("ebnf", "grammar", "structural_tag")}
    names = [key for key, value in held.items() if value is not None]
    if len(names) > 1:
        raise ValueError(f"gen({name!r}) has both {names[0]} and {names[1]}; give one of them")
    if choices is not None:
        return _choice_of(name, choices, choices_method, given)
    if choices_method is not None:
        raise ValueError(f"gen({name!r}) has choices_method, but no choices")
    parse, typed = None, False
    if json_schema is not None:
        given["json_schema"], parse, typed = shape(json_schema)
    if dtype is not None:
        given["regex"], parse, ends = _kind(dtype)
        if ends:
            given |= {"stop": _also(stop, ends), "no_stop_trim": False}
    return Gen(name, settings(given), parse, typed)


class OfKind:
    """``gen`` of a plain kind; takes what ``gen`` takes, but for other constraints and
    ``min_tokens``."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __call__(
        self,
        name: str | None = None,
        max_tokens: int | None = None,
        n: int | None = None,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        stop_regex: str | Sequence[str] | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
        ignore_eos: bool | None = None,
        return_logprob: bool | None = None,
        logprob_start_len: int | None = None,
        top_logprobs_num: int | None = None,
        return_text_in_logprobs: bool | None = None,
        **more: Unpack[SamplingOptions],
    ) -> Expression:
        return gen(
            name, max_tokens, None, n, stop, stop_token_ids, stop_regex, temperature, top_p, top_k,
            min_p, frequency_penalty, presence_penalty, ignore_eos, return_logprob,
            logprob_start_len, top_logprobs_num, return_text_in_logprobs, self._kind, **more,
        )  # fmt: skip


gen_int = OfKind(int)
"""A whole number. ``s.parsed(name)`` is an ``int``."""

gen_float = OfKind(float)
"""A decimal number. ``s.parsed(name)`` is a ``float``."""

gen_string = OfKind(str)
"""A text in double quotes. ``s.parsed(name)`` has no quotes."""


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: ChoicesMethod | None = None,
    *,
    method: ChoicesMethod | None = None,
) -> Expression:
    """The likeliest of ``choices`` by ``choices_method`` (or ``method``, its short name).

    ``ValueError`` without choices, for empty ones and for two that are equal.
    """
    if choices is None or isinstance(choices, str):
        raise ValueError(f"select({name!r}) needs a list of choices")
    if temperature > 1e-5:
        raise ValueError(f"select({name!r}) takes the likeliest choice: temperature must be 0")
    if method is not None and choices_method is not None:
        raise ValueError(f"select({name!r}) has both choices_method and method")
    texts = tuple(choices)
    if not texts:
        raise ValueError(f"select({name!r}) has no choices")
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"choice {at} of select({name!r}) is {text!r}, which is no text")
        if not text:
            raise ValueError(f"choice {at} of select({name!r}) is empty")
        if text in texts[:at]:
            raise ValueError(f"select({name!r}) has the choice {text!r} twice")
    return Select(name, texts, choices_method or method or token_length_normalized)


def system(expr: Expression | str | None = None) -> Expression:
    """A system message."""
    return role_of("system", expr)


def user(expr: Expression | str | None = None) -> Expression:
    """A user's message."""
    return role_of("user", expr)


def assistant(expr: Expression | str | None = None) -> Expression:
    """The model's message; the place for ``gen`` and ``select`` in a chat."""
    return role_of("assistant", expr)


def tool(tool_call_id: str, expr: Expression | str) -> Expression:
    """The result of a call that the model made."""
    fields = {"tool_call_id": tool_call_id}
    return Joined((Begin("tool", fields), *leaves(expr), End("tool")))


def system_begin() -> Expression:
    """Opens a system message."""
    return Begin("system")


def system_end() -> Expression:
    """Closes it."""
    return End("system")


def user_begin() -> Expression:
    """Opens a user's message."""
    return Begin("user")


def user_end() -> Expression:
    """Closes it."""
    return End("user")


def assistant_begin() -> Expression:
    """Opens the model's message."""
    return Begin("assistant")


def assistant_end() -> Expression:
    """Closes it."""
    return End("assistant")


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was set of some parameters, lists made tuples; ``TypeError`` for texts as lists."""
    kept = {key: value for key, value in given.items() if value is not None}
    for key in ("stop", "stop_regex"):
        if key in kept:
            kept[key] = (kept[key],) if isinstance(kept[key], str) else tuple(kept[key])
    if "stop_token_ids" in kept:
        kept["stop_token_ids"] = tuple(kept["stop_token_ids"])
    return kept


def role_of(role: str, expr: Expression | str | None) -> Expression:
    """A whole message."""
    inner = () if expr is None else tuple(leaves(expr))
    return Joined((Begin(role), *inner, End(role)))


_IRRELEVANT_TO_CHOICES = frozenset({"temperature", "max_tokens"})


def _choice_of(
    name: str | None,
    choices: Sequence[str],
    method: ChoicesMethod | None,
    given: Mapping[str, Any],
) -> Expression:
    for key, value in given.items():
        if value is not None and key not in _IRRELEVANT_TO_CHOICES:
            raise ValueError(f"gen({name!r}) has choices, which {key} has no meaning for")
    return select(name, choices, choices_method=method)


def _also(stop: str | Sequence[str] | None, ends: tuple[str, ...]) -> tuple[str, ...]:
    return (*((stop,) if isinstance(stop, str) else stop or ()), *ends)


def _kind(dtype: type | str) -> tuple[str, Any, tuple[str, ...]]:
    """A pattern, how its text is read, and where it ends besides."""
    word = dtype if isinstance(dtype, str) else dtype.__name__
    if word not in _KINDS:
        raise ValueError(f"dtype is {word}; it must be one of {', '.join(_KINDS)}")
    return _KINDS[word]


def _truth(text: str) -> bool:
    return text == "True"


_KINDS: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "int": (INTEGER, int, AFTER_INTEGER),
    "float": (FLOAT, float, AFTER_FLOAT),
    "str": (STRING, json.loads, ()),
    "bool": (BOOLEAN, _truth, ()),
}
