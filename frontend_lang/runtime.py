"""What a program runs on: requests, answers, and the ``Runtime`` that turns one into the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    tool_call_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """OpenAI's form."""
        plain: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            plain["tool_calls"] = [dict(call) for call in self.tool_calls]
        if self.tool_call_id is not None:
            plain["tool_call_id"] = self.tool_call_id
        return plain


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """What a model is to go on from.

    Without ``messages``: a plain text. With them: a chat whose next message is the assistant's and
    starts with ``text``; the runtime writes both with the model's own template. ``opens`` is for a
    chat that the assistant begins.
    """

    messages: tuple[Message, ...] = ()
    text: str = ""
    opens: bool = False

    @property
    def is_chat(self) -> bool:
        """Whether the model's template applies."""
        return bool(self.messages) or self.opens

    def extended(self, text: str) -> Prompt:
        """With more text at the end."""
        return Prompt(messages=self.messages, text=self.text + text, opens=self.opens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How to sample one request; SGLang's names and defaults. ``top_k`` -1 is off."""

    max_tokens: int | None = 128
    min_tokens: int = 0
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stop_regex: tuple[str, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    ignore_eos: bool = False
    return_logprob: bool = False
    logprob_start_len: int | None = None
    top_logprobs_num: int = 0
    return_text_in_logprobs: bool = False
    regex: str | None = None
    json_schema: str | None = None
    ebnf: str | None = None
    grammar: str | Mapping[str, str] | None = None
    structural_tag: Mapping[str, Any] | str | None = None
    lenient: bool = False
    whitespace: int = 0
    on_budget: str | None = None
    skip_special_tokens: bool = True
    no_stop_trim: bool = False
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    cache_salt: str | None = None
    priority: int | None = None

    def changed(self) -> dict[str, Any]:
        """The parameters that are not at their defaults."""
        return {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) != item.default
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One ``gen``. ``name`` is the variable that it fills, where it has one."""

    prompt: Prompt
    sampling: Sampling
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreRequest:
    """One ``select``: how likely is each continuation after the prompt?

    A continuation is a text, or token ids as an earlier ``Score`` reported them.
    """

    prompt: Prompt
    continuations: tuple[str | tuple[int, ...], ...]
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One finished sample. ``meta`` has ``prompt_tokens``, ``completion_tokens``,
    ``cached_tokens``, ``finish_reason`` and whatever else the runtime knows."""

    text: str
    meta: dict[str, Any] = field(default_factory=dict)
    tool_calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Delta:
    """What is new in a stream; the last one has the ``meta`` of an ``Answer``."""

    text: str
    meta: dict[str, Any] | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Token ids and log-probabilities of one continuation.

    All scores of one request start at the same position of the prompt, so that they can be
    compared. Where a continuation merges with the prompt's last token, that position lies before
    the prompt's end. ``prompt_tokens`` are those of prompt and continuation together, of which
    ``cached_tokens`` were not computed.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_tokens: int = 0
    cached_tokens: int = 0


@runtime_checkable
class Runtime(Protocol):
    """Async-first: called on whatever event loop the program has, many requests at a time.

    Cancelling the task that waits cancels the request. What a runtime cannot do it refuses with
    a ``ValueError`` that names it.
    """

    async def generate(self, request: Request) -> list[Answer]:
        """``request.sampling.n`` samples."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """One sample in pieces."""
        ...

    async def score(self, request: ScoreRequest) -> list[Score]:
        """A score for each continuation, in order."""
        ...

    async def render(self, prompt: Prompt) -> str:
        """The prompt's text as the model reads it, without an opening for an answer."""
        ...

    async def flush(self) -> bool:
        """Empties the prefix cache, where there is one; ``False`` if it could not."""
        ...


@runtime_checkable
class Warms(Protocol):
    """A runtime that can compute a prefix ahead of the requests that share it."""

    async def warm(self, prompt: Prompt) -> None:
        """Computes a prompt's KV. Without an opening for an answer: ``prompt.text`` is empty in a
        chat."""
        ...


@runtime_checkable
class Informs(Protocol):
    """A runtime that tells how it is set."""

    async def info(self) -> dict[str, Any]:
        """A server's ``/server_info``."""
        ...
