"""Sampling parameters: what a user may ask of one request, with every range checked."""

from __future__ import annotations

import math

import msgspec

from .errors import RequestError

MAX_STOPS = 32
MAX_STOP_BYTES = 1024
MAX_STOP_TOKEN_IDS = 128
MAX_TOP_LOGPROBS = 20
MAX_N = 128
MAX_LOGIT_BIAS = 1024


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to sample one request. Defaults mean "off"; names follow OpenAI and SGLang.

    ``top_k`` 0 is off. ``max_tokens`` ``None`` is "to the end of the context"; the front replaces
    it by a number before a request is submitted. ``logprobs`` is the number of alternatives to
    report beside each output token (0 reports the chosen token alone), ``None`` reports nothing.
    ``shown_ids`` are special tokens that are text even where special tokens are skipped.
    ``prompt_logprobs_from`` asks for the log-probabilities of the prompt's tokens from that
    position on, with ``prompt_logprobs_top`` alternatives.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop: bool = False
    skip_special_tokens: bool = True
    shown_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    prompt_logprobs_from: int | None = None
    prompt_logprobs_top: int = 0

    def check(self, vocab_size: int) -> None:
        """Raises ``RequestError`` naming the first field outside its range.

        ``vocab_size`` is the number of token ids that the model can read and write.
        """
        for name, (low, high, low_open) in _RANGES.items():
            _check_range(name, getattr(self, name), low, high, low_open)
        if self.max_tokens is not None and self.max_tokens < 0:
            raise RequestError(
                f"max_tokens is {self.max_tokens}; it must be 0 or more", param="max_tokens"
            )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens ({self.min_tokens}) is above max_tokens ({self.max_tokens})",
                param="min_tokens",
            )
        if self.logprobs is not None:
            _check_range("logprobs", self.logprobs, 0, MAX_TOP_LOGPROBS, False)
        if self.seed is not None:
            _check_range("seed", self.seed, -(2**63), 2**63 - 1, False)
        if self.prompt_logprobs_from is not None and self.prompt_logprobs_from < 0:
            raise RequestError(
                f"prompt logprobs start at {self.prompt_logprobs_from}; it must be 0 or more",
                param="logprob_start_len",
            )
        self._check_stops()
        if len(self.stop_token_ids) > MAX_STOP_TOKEN_IDS:
            raise RequestError(
                f"stop_token_ids has {len(self.stop_token_ids)} entries; "
                f"at most {MAX_STOP_TOKEN_IDS} are allowed",
                param="stop_token_ids",
            )
        for token in self.stop_token_ids:
            check_token_id(token, vocab_size, "stop_token_ids")
        if len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise RequestError(
                f"logit_bias has {len(self.logit_bias)} entries; the most is {MAX_LOGIT_BIAS}",
                param="logit_bias",
            )
        for token, bias in self.logit_bias.items():
            check_token_id(token, vocab_size, "logit_bias")
            _check_range("logit_bias", bias, -100.0, 100.0, False)

    def _check_stops(self) -> None:
        if len(self.stop) > MAX_STOPS:
            raise RequestError(
                f"stop has {len(self.stop)} strings; at most {MAX_STOPS} are allowed", param="stop"
            )
        for text in self.stop:
            if not text:
                raise RequestError(
                    "stop contains an empty string, which would match everything", param="stop"
                )
            if len(text.encode("utf-8", "surrogatepass")) > MAX_STOP_BYTES:
                raise RequestError(
                    f"a stop string has more than {MAX_STOP_BYTES} bytes", param="stop"
                )


def check_token_id(token: int, vocab_size: int, param: str) -> None:
    """Raises ``RequestError`` unless ``token`` is an id of the vocabulary."""
    if not 0 <= token < vocab_size:
        raise RequestError(
            f"token id {token} is outside the vocabulary (0 to {vocab_size - 1})", param=param
        )


def _check_range(name: str, value: float, low: float, high: float, low_open: bool) -> None:
    # The comparison is written so that NaN fails it.
    inside = (low < value if low_open else low <= value) and value <= high
    if inside and math.isfinite(value):
        return
    bracket = "(" if low_open else "["
    raise RequestError(f"{name} is {value}; it must be in {bracket}{low}, {high}]", param=name)


_RANGES: dict[str, tuple[float, float, bool]] = {
    "min_tokens": (0, 2**31 - 1, False),
    "n": (1, MAX_N, False),
    "temperature": (0.0, 2.0, False),
    "top_p": (0.0, 1.0, True),
    "top_k": (0, 2**31 - 1, False),
    "min_p": (0.0, 1.0, False),
    "repetition_penalty": (0.01, 2.0, False),
    "presence_penalty": (-2.0, 2.0, False),
    "frequency_penalty": (-2.0, 2.0, False),
    "prompt_logprobs_top": (0, MAX_TOP_LOGPROBS, False),
}
