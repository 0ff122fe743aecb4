"""From what a client sent to what is run: every default filled in, every limit applied.

A value comes from the request, else from the model's own generation defaults, else from OpenAI's.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ..errors import RequestError
from ..params import MAX_TOP_LOGPROBS, SamplingParams
from .bodies import ChatBody, CompletionBody, NativeParams, OpenAIBody
from .entry import Prompt
from .model_info import ModelInfo

T = TypeVar("T")

COMPLETION_TOKENS = 16
NATIVE_TOKENS = 128
MAX_RID = 256
MAX_SALT = 1024
FRESH_SEED_BITS = 53
"""Readers that take JSON numbers for doubles can give such a seed back unchanged."""

_SHARED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_MORE = ("presence_penalty", "frequency_penalty", "ignore_eos", "skip_special_tokens", "n")


def chat_params(body: ChatBody, model: ModelInfo) -> SamplingParams:
    """``max_completion_tokens`` wins over ``max_tokens``; without either, to the context's end."""
    budget = _or(body.max_completion_tokens, body.max_tokens)
    top = _or(body.top_logprobs, 0)
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    logprobs = _count(top, "top_logprobs") if body.logprobs else None
    return _openai_params(body, model, budget, name, logprobs, None)


def completion_params(body: CompletionBody, model: ModelInfo) -> SamplingParams:
    """With ``echo`` and ``logprobs`` the prompt is scored too."""
    budget = _or(body.max_tokens, COMPLETION_TOKENS)
    logprobs = None if body.logprobs is None else _count(body.logprobs, "logprobs")
    start = 0 if body.echo and logprobs is not None else None
    return _openai_params(body, model, budget, "max_tokens", logprobs, start)


def native_params(
    params: NativeParams, model: ModelInfo, *, logprob: bool, start: int, top: int
) -> SamplingParams:
    """``start`` -1 scores the output alone, 0 or more the prompt from there on too."""
    if start < -1:
        raise RequestError(
            f"logprob_start_len is {start}; it must be -1 or more", param="logprob_start_len"
        )
    alternatives = _count(top, "top_logprobs_num")
    scored = logprob and start >= 0
    try:
        return _build(
            _given(params, model),
            max_tokens=_budget(_or(params.max_new_tokens, NATIVE_TOKENS), "max_new_tokens"),
            min_tokens=_or(params.min_new_tokens, 0),
            seed=_or(params.seed, params.sampling_seed),
            include_stop=bool(params.no_stop_trim),
            logprobs=alternatives if logprob else None,
            prompt_logprobs_from=start if scored else None,
            prompt_logprobs_top=alternatives if scored else 0,
            model=model,
        )
    except RequestError as error:
        name = "min_new_tokens" if error.param == "min_tokens" else error.param
        raise RequestError(
            error.message, param=f"sampling_params.{name}", code=error.code
        ) from error


def fitted(
    prompt: Prompt,
    model: ModelInfo,
    truncate_to: int | None = None,
    param: str = "prompt",
    wanted: int | None = None,
) -> Prompt:
    """The prompt cut to ``truncate_to`` tokens, its end kept; ``max_tokens`` clipped to what fits.

    ``truncate_to`` -1 cuts to what leaves room for ``wanted`` tokens, those that the request asked
    for itself; for one where it is a default that says how many. ``RequestError`` for an empty
    prompt, or one that leaves no room in the context for the one token that was asked for.
    """
    ids, params = prompt.ids, prompt.params
    if not ids:
        raise RequestError("the prompt is empty", param=param)
    if truncate_to is not None:
        ids = ids[-_kept(truncate_to, wanted, model.context_length) :]
    room = model.context_length - len(ids)
    if room < min(1, 1 if params.max_tokens is None else params.max_tokens):
        raise RequestError(
            f"the prompt has {len(ids)} tokens, and the context of this model is "
            f"{model.context_length} tokens, prompt and answer together",
            param=param,
            code="context_length_exceeded",
        )
    _check_start(params, len(ids))
    budget = room if params.max_tokens is None else min(params.max_tokens, room)
    params = msgspec.structs.replace(
        params, max_tokens=budget, min_tokens=min(params.min_tokens, budget)
    )
    return prompt._replace(ids=ids, params=params)


def _kept(truncate_to: int, max_tokens: int | None, context: int) -> int:
    if truncate_to == -1:
        return max(1, context - (1 if max_tokens is None else max_tokens))
    if truncate_to < 1:
        raise RequestError(
            f"truncate_prompt_tokens is {truncate_to}; it must be 1 or more, or -1",
            param="truncate_prompt_tokens",
        )
    return truncate_to


def fresh_seed() -> int:
    """A seed for a request that brings none."""
    return secrets.randbits(FRESH_SEED_BITS)


def namespace(salt: str | None, *, tenant: str = "", adapter: str = "") -> bytes:
    """Where a request's prefixes live: requests with other salts never share them."""
    if salt is not None and len(salt) > MAX_SALT:
        raise RequestError(
            f"cache_salt has {len(salt)} characters; the most is {MAX_SALT}", param="cache_salt"
        )
    parts = [part.encode() for part in (tenant, salt or "", adapter)]
    joined = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hashlib.blake2b(joined, digest_size=16).digest()


def checked_rid(rid: str | None) -> str | None:
    """The user's own id for a request: 1 to 256 printable characters."""
    if rid is None or (0 < len(rid) <= MAX_RID and rid.isprintable()):
        return rid
    raise RequestError(
        f"rid has {len(rid)} characters; it must have 1 to {MAX_RID}, all printable", param="rid"
    )


def checked_priority(priority: int | None) -> int:
    """A request's priority class; 0 unless told otherwise."""
    value = _or(priority, 0)
    if not -(2**31) <= value < 2**31:
        raise RequestError(f"priority is {value}; it must fit into 32 bits", param="priority")
    return value


def _openai_params(
    body: OpenAIBody,
    model: ModelInfo,
    budget: int | None,
    budget_name: str,
    logprobs: int | None,
    prompt_logprobs_from: int | None,
) -> SamplingParams:
    return _build(
        _given(body, model),
        max_tokens=None if budget is None else _budget(budget, budget_name),
        min_tokens=_or(body.min_tokens, 0),
        seed=body.seed,
        include_stop=bool(body.include_stop_str_in_output or body.no_stop_trim),
        logprobs=logprobs,
        prompt_logprobs_from=prompt_logprobs_from,
        prompt_logprobs_top=0 if prompt_logprobs_from is None else logprobs or 0,
        model=model,
    )


def _build(values: dict[str, Any], *, model: ModelInfo, **rest: Any) -> SamplingParams:
    params = SamplingParams(**values, **rest)
    params.check(model.vocab_size)
    return params


def _given(body: OpenAIBody | NativeParams, model: ModelInfo) -> dict[str, Any]:
    """The fields that need no more than their default, as ``SamplingParams`` names them."""
    values: dict[str, Any] = {}
    for name in _SHARED:
        value = _or(getattr(body, name), _default(model.defaults, name))
        if value is not None:
            values[name] = value
    for name in _MORE:
        value = getattr(body, name)
        if value is not None:
            values[name] = value
    if values.get("top_k") == -1:
        values["top_k"] = 0
    values["logit_bias"] = body.logit_bias or {}
    values["stop"] = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    values["stop_token_ids"] = tuple(body.stop_token_ids or ())
    return values


def _default(defaults: Mapping[str, float], name: str) -> float | None:
    value = defaults.get(name)
    return int(value) if value is not None and name == "top_k" else value


def _budget(value: int, name: str) -> int:
    if value < 0:
        raise RequestError(f"{name} is {value}; it must be 0 or more", param=name)
    return value


def _count(value: int, name: str) -> int:
    """A number of alternatives to report."""
    if not 0 <= value <= MAX_TOP_LOGPROBS:
        raise RequestError(f"{name} is {value}; it must be in [0, {MAX_TOP_LOGPROBS}]", param=name)
    return value


def _check_start(params: SamplingParams, prompt_len: int) -> None:
    start = params.prompt_logprobs_from
    if start is not None and start > prompt_len:
        raise RequestError(
            f"logprob_start_len is {start}, and the prompt has {prompt_len} tokens",
            param="logprob_start_len",
        )


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
