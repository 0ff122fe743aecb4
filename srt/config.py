"""Configuration: one frozen dataclass per component; the command line's flags are made from them.

A field's metadata holds its help text (``help``), ``choices`` where only some values are right, and
``low`` and ``high`` where a number is limited. A field ``max_running`` of ``SchedulerConfig``
becomes the flag ``--max-running``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import UsageError


def flag(
    default: Any,
    help: str,
    choices: tuple[str, ...] | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """A configuration field that is also a flag of the command line."""
    metadata: dict[str, Any] = {"help": help}
    for name, value in (("choices", choices), ("low", low), ("high", high)):
        if value is not None:
            metadata[name] = value
    return field(default=default, metadata=metadata)


def check(part: Any) -> None:
    """Raises ``UsageError`` naming the first field of a component that has an impossible value."""
    for each in fields(part):
        value, meta = getattr(part, each.name), each.metadata
        name = "--" + each.name.replace("_", "-")
        if value is None:
            continue
        if "choices" in meta and value not in meta["choices"]:
            raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(meta['choices'])}")
        low, high = meta.get("low"), meta.get("high")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if (low is not None or high is not None) and not (number and math.isfinite(value)):
            raise UsageError(f"{name} is {value!r}; it must be a finite number")
        # Written so that NaN fails.
        if low is not None and not value >= low:
            raise UsageError(f"{name} is {value}; it must be {low} or more")
        if high is not None and not value <= high:
            raise UsageError(f"{name} is {value}; it must be {high} or less")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, and how it runs."""

    model: str | None = flag(
        None,
        "a .gguf file, a checkpoint directory or a hub name; default: SmolLM2-135M-Instruct",
    )
    served_name: str | None = flag(
        None, "the name that requests use; default: made from the model's"
    )
    device: str = flag("auto", "where the model runs", ("auto", "cpu", "cuda"))
    dtype: str = flag(
        "auto",
        "of weights, activations, KV; auto: bfloat16 where the hardware multiplies it, or float32",
        ("auto", "float32", "bfloat16"),
    )
    quantization: str = flag(
        "none",
        "of weights, on a CPU; stored: keep 4-bit blocks of a GGUF file; w8a8: 8-bit weights and "
        "activations",
        ("none", "stored", "w8a8"),
    )
    attention: str = flag("auto", "attention backend", ("auto", "reference", "cpu"))
    deterministic: bool = flag(
        False,
        "the same tokens whatever else is in a step, and however a prompt was computed; slower",
    )
    context_length: int | None = flag(
        None, "most tokens of a request, prompt and output; default: the model's own", low=1
    )
    threads: int | None = flag(
        None, "CPU threads of the worker; default: one for each core", low=1, high=1024
    )
    chat_template: str | None = flag(
        None, "a file with a Jinja chat template, in place of the model's own"
    )


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """The KV pool and the tree over it."""

    page_size: int = flag(1, "tokens in a page of KV", low=1)
    kv_tokens: int | None = flag(
        None, "tokens that the KV pool holds; default: made from --kv-memory", low=1
    )
    kv_memory: float = flag(2.0, "GiB of KV pool, where --kv-tokens is not given", low=0.001)


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """What may be in a step, and who comes first."""

    max_running: int = flag(64, "most rows in a step", low=1)
    max_batched_tokens: int = flag(512, "most tokens computed in a step", low=1)
    max_waiting: int = flag(2048, "most samples that wait; more are refused with 503", low=0)
    ageing_steps: int = flag(
        256,
        "steps after which a waiting request goes before any with a longer cached prefix",
        low=1,
    )
    reserve_tokens: int = flag(
        32, "tokens of output that each row must find room for when another is admitted", low=0
    )
    speculate: str = flag(
        "off",
        "guess tokens from what a request has said before, and verify them in one step; "
        "auto: only where the measured cost of a step lets it pay",
        ("off", "ngram", "auto"),
    )
    draft_tokens: int = flag(8, "most tokens guessed for a row in a step", low=1, high=64)


@dataclass(frozen=True, kw_only=True)
class FrontConfig:
    """The HTTP side."""

    host: str = flag("127.0.0.1", "address to listen on")
    port: int = flag(30000, "port to listen on; 0 picks a free one", low=0, high=65535)
    max_body_bytes: int = flag(16 * 2**20, "largest request body", low=1)
    stall_seconds: float = flag(
        60.0, "a stream whose client takes nothing for so long is cancelled", low=0.1
    )
    allow_control_tokens: bool = flag(
        False, "let text in chat messages form control tokens such as <|im_end|>"
    )
    tool_format: str = flag(
        "auto",
        "how the model calls tools; auto: as its chat template does, or in a plain form",
        ("auto", "hermes", "llama3", "mistral", "plain"),
    )


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """What is written to standard error."""

    log_level: str = flag(
        "info", "least severe lines to write", ("debug", "info", "warning", "error")
    )
    log_format: str = flag(
        "text", "one line of text, or one JSON object, an event", ("text", "json")
    )


@dataclass(frozen=True, kw_only=True)
class ProcessConfig:
    """When a process of the server counts as dead; the server then ends."""

    silent_seconds: float = flag(
        10.0, "a process that gives no sign of life for so long is killed", low=1
    )
    step_seconds: float = flag(
        120.0, "a process that is in one step for so long is killed", low=0.1
    )


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """All of a server's parts."""

    model: ModelOptions = field(default_factory=ModelOptions)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    front: FrontConfig = field(default_factory=FrontConfig)
    processes: ProcessConfig = field(default_factory=ProcessConfig)
    log: LogConfig = field(default_factory=LogConfig)
