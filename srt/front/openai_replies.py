"""OpenAI's answers, as structs. Fields without a value are left out where the public types allow
it, and ``null`` only where they allow that."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from sapwood.constrain.spec import Warning

from .entry import Call
from .token_names import ChatLogprobs, CompletionLogprobs


class PromptDetails(msgspec.Struct):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """Tokens of a request; each prompt is counted once, whatever ``n`` is."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails

    @classmethod
    def of(cls, call: Call) -> Usage:
        """What a request has used so far."""
        prompt, completion = call.prompt_tokens, call.completion_tokens
        cached = PromptDetails(call.cached_tokens)
        return cls(prompt, completion, prompt + completion, cached)


class CalledFunction(msgspec.Struct):
    """A function and its arguments, as JSON text."""

    name: str
    arguments: str


class ReplyCall(msgspec.Struct):
    """A call of a tool."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class ChatReplyMessage(msgspec.Struct):
    """The assistant's turn. ``content`` is ``null`` where there are calls and no text."""

    content: str | None
    tool_calls: list[ReplyCall] | UnsetType = UNSET
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatReplyChoice(msgspec.Struct, kw_only=True):
    """One sample of a chat completion."""

    index: int
    message: ChatReplyMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    matched_stop: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatReply(msgspec.Struct, kw_only=True):
    """A whole chat completion."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatReplyChoice]
    usage: Usage
    system_fingerprint: str
    seed: int
    warnings: list[Warning] | UnsetType = UNSET


class FunctionDelta(msgspec.Struct):
    """What a chunk adds to a call's function: the name first, with arguments that are empty."""

    name: str | UnsetType = UNSET
    arguments: str = ""


class CallDelta(msgspec.Struct):
    """What a chunk adds to a call; ``index`` is the call's place in the answer."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(msgspec.Struct):
    """What a chunk adds."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    """A chunk's part of one sample."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    matched_stop: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One sample of a completion, or a chunk's part of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    matched_stop: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class CompletionReply(msgspec.Struct, kw_only=True):
    """A whole completion."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    system_fingerprint: str
    seed: int
    warnings: list[Warning] | UnsetType = UNSET


class ChunkHead(msgspec.Struct, kw_only=True):
    """What all chunks of a stream have in common; ``choices`` follow."""

    id: str
    object: Literal["chat.completion.chunk", "text_completion"]
    created: int
    model: str
    system_fingerprint: str
    seed: int


class ErrorDetail(msgspec.Struct):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(msgspec.Struct):
    """OpenAI's error body."""

    error: ErrorDetail


class ModelCard(msgspec.Struct, kw_only=True):
    """An entry of the list of models."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "sapwood"
    root: str
    parent: None = None
    max_model_len: int


class ModelList(msgspec.Struct, kw_only=True):
    """The list of models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


encode = msgspec.json.Encoder().encode


def warnings_of(call: Call) -> list[Warning] | UnsetType:
    """What lenient constraints do without; left out where that is nothing."""
    return call.warnings or UNSET


def frame(value: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + encode(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"
