"""What ``run`` takes besides a program's own arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from .building import settings


class RunOptions(TypedDict, total=False):
    """Sampling parameters of all ``gen`` of a run, under SGLang's names and defaults, and:

    ``backend``: the runtime, else that of the enclosing program, else the default one.
    ``stream``: return at once, and let ``text_iter`` give pieces as they come.
    ``timeout``: seconds after which the run is ended with ``TimeoutError``.
    ``use_thread`` is accepted for SGLang's sake; no state has a thread of its own.
    """

    max_new_tokens: int
    min_tokens: int
    n: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    stop_regex: str | Sequence[str]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    ignore_eos: bool
    return_logprob: bool
    logprob_start_len: int
    top_logprobs_num: int
    return_text_in_logprobs: bool
    seed: int
    logit_bias: Mapping[int, float]
    skip_special_tokens: bool
    on_budget: str
    cache_salt: str
    priority: int
    stream: bool
    backend: Any
    timeout: float
    use_thread: bool


NOT_SAMPLING = frozenset({"stream", "backend", "timeout", "use_thread"})
NAMES = frozenset(RunOptions.__annotations__)


def split(given: Mapping[str, Any], own: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A program's arguments and the run's options. A name that both have is the program's."""
    arguments = {key: value for key, value in given.items() if key in own or key not in NAMES}
    options = {key: value for key, value in given.items() if key not in arguments}
    return arguments, options


def sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a run's requests."""
    named = {key: value for key, value in options.items() if key not in NOT_SAMPLING}
    if "max_new_tokens" in named:
        named["max_tokens"] = named.pop("max_new_tokens")
    return settings(named)
