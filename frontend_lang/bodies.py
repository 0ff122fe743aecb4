"""Requests as our server's OpenAI routes take them."""

from __future__ import annotations

from typing import Any

from .chats import chat, chat_options
from .refusal import refuse
from .runtime import Request, Sampling

_ALWAYS = (
    "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "presence_penalty", "frequency_penalty",
)  # fmt: skip
"""Sent even at their defaults: those of the server may be the model's own."""
_LOGPROBS = frozenset(
    {"return_logprob", "logprob_start_len", "top_logprobs_num", "return_text_in_logprobs"}
)
OF_CHATS = ("tools", "tool_choice", "parallel_tool_calls")


def openai_body(request: Request) -> tuple[str, dict[str, Any]]:
    """Route and body of OpenAI's kind."""
    given = parameters(request.sampling)
    prompt = request.prompt
    given["return_token_ids"] = True
    if not prompt.is_chat:
        refuse("a prompt without roles", request.sampling.changed(), OF_CHATS)
        return "/v1/completions", {"prompt": prompt.text, **given}
    tools = {key: getattr(request.sampling, key) for key in OF_CHATS}
    tools = {key: value for key, value in tools.items() if value is not None}
    return (
        "/v1/chat/completions",
        {"messages": chat(prompt), **chat_options(prompt), **given, **tools},
    )


def parameters(sampling: Sampling) -> dict[str, Any]:
    """Under the names of OpenAI's routes; tools and log-probabilities left out."""
    changed = {
        key: value
        for key, value in sampling.changed().items()
        if key not in _LOGPROBS and key not in OF_CHATS
    }
    always = {key: getattr(sampling, key) for key in _ALWAYS}
    if sampling.logit_bias is not None:
        changed["logit_bias"] = {str(key): value for key, value in sampling.logit_bias.items()}
    return {**always, **changed}
