"""What clients may send. ``None`` is "not given" everywhere: ``null`` means the default.

Types are strict: a number in quotes, or a fraction where a whole number belongs, is refused.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .constraint_fields import ConstraintFields, OpenAIConstraintFields
from .tool_fields import ToolChoiceField, ToolField

Ids = list[int]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a stream holds besides the text. ``include_obfuscation`` has no effect."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class OpenAIBody(OpenAIConstraintFields, forbid_unknown_fields=True, kw_only=True):
    """What chat completions and completions have in common."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    # As other servers have them.
    top_k: int | None = None
    min_p: float | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    stop_token_ids: Ids | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    no_stop_trim: bool | None = None
    cache_salt: str | None = None
    priority: int | None = None
    rid: str | None = None
    truncate_prompt_tokens: int | None = None
    return_token_ids: bool | None = None

    # Published by OpenAI, without meaning here.
    user: str | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None

    # Not yet (see protocol.NOT_YET).
    custom_logit_processor: Any = None
    logits_processors: Any = None
    lora_path: Any = None


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One turn. Answers may be sent back as they came, so all fields of an answer are known."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Any] | None = None
    name: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    annotations: list[Any] | None = None
    audio: dict[str, Any] | None = None


class ChatBody(OpenAIBody, forbid_unknown_fields=True, kw_only=True):
    """``POST /v1/chat/completions``."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    tools: list[ToolField] | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None

    # Published by OpenAI, without meaning here.
    prediction: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None

    # Not yet.
    functions: list[Any] | None = None
    function_call: Any = None
    audio: Any = None
    modalities: list[Any] | None = None
    web_search_options: Any = None
    moderation: Any = None
    chat_template: Any = None


class CompletionBody(OpenAIBody, forbid_unknown_fields=True, kw_only=True):
    """``POST /v1/completions``. ``prompt`` is a text, ids, or a list of either."""

    prompt: str | list[Any]
    logprobs: int | None = None
    echo: bool | None = None

    # Not yet.
    best_of: int | None = None
    suffix: Any = None
    use_beam_search: Any = None


class NativeParams(ConstraintFields, forbid_unknown_fields=True, kw_only=True):
    """``sampling_params`` of ``/generate``, under SGLang's names."""

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: Ids | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    no_stop_trim: bool | None = None
    n: int | None = None
    sampling_seed: int | None = None
    seed: int | None = None

    # Not yet.
    stop_regex: Any = None
    custom_params: Any = None


class GenerateBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``POST /generate``: exactly one of ``text`` and ``input_ids``, one prompt or a list."""

    text: str | list[str] | None = None
    input_ids: list[int | Ids] | None = None
    sampling_params: NativeParams | list[NativeParams] | None = None
    return_logprob: bool | list[bool] | None = None
    logprob_start_len: int | list[int] | None = None
    top_logprobs_num: int | list[int] | None = None
    return_text_in_logprobs: bool | None = None
    stream: bool | None = None
    rid: str | list[str] | None = None
    model: str | None = None
    cache_salt: str | None = None
    priority: int | None = None
    truncate_prompt_tokens: int | None = None

    # Not yet.
    lora_path: Any = None
    image_data: Any = None
    audio_data: Any = None
    video_data: Any = None
    input_embeds: Any = None
    session_params: Any = None
    custom_logit_processor: Any = None
    return_hidden_states: Any = None
    token_ids_logprob: Any = None


class TokenizeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``POST /tokenize``: exactly one of ``prompt`` and ``messages``."""

    model: str | None = None
    prompt: str | list[str] | None = None
    messages: list[ChatMessage] | None = None
    tools: list[ToolField] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``POST /detokenize``."""

    model: str | None = None
    tokens: list[int | Ids]
    skip_special_tokens: bool | None = None


class AbortBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``POST /abort_request``: ends the request with exactly this rid."""

    rid: str


class FlushBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``POST /flush_cache`` needs no body; an empty object will do."""
