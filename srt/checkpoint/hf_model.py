"""A Hugging Face checkpoint directory: weights, end tokens, sampling defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import LoadError, RequestError
from ..model_config import ModelConfig
from ..params import SamplingParams
from .safetensors_file import read_directory
from .weights import Weight, check_tensors

_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.")
_BUFFER = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_CHUNK = 2**24


def hf_weights(folder: Path, config: ModelConfig) -> Mapping[str, Weight]:
    """Every tensor by its canonical name; ``LoadError`` unless they are exactly those that the
    configuration needs.

    Two kinds of tensors may be there without being asked for: RoPE's frequencies, which old
    versions of transformers stored and which follow from the configuration, and the head of a
    model with tied embeddings, if it is identical to the embedding.
    """
    weights: dict[str, Weight] = {}
    for stored in read_directory(folder).values():
        name = _canonical(stored.name)
        if _BUFFER.fullmatch(name):
            continue
        if name in weights:
            raise LoadError(f"the checkpoint has the tensor {name} twice")
        stored.name = name
        weights[name] = stored
    if config.tied_embeddings and _HEAD in weights:
        _check_tied(weights.pop(_HEAD), weights.get(_EMBEDDING))
    check_tensors(weights, config)
    return weights


def _canonical(name: str) -> str:
    """The name without the prefix that models of several media put before their language model."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            return rest if rest.startswith(("model.", "lm_head.")) else f"model.{rest}"
    return name


def _check_tied(head: Weight, embedding: Weight | None) -> None:
    if embedding is None:
        return  # reported as missing
    same = head.shape == embedding.shape and head.dtype == embedding.dtype
    if same:
        left = head.stored().reshape(-1).view(np.uint8)
        right = embedding.stored().reshape(-1).view(np.uint8)
        same = all(
            np.array_equal(left[at : at + _CHUNK], right[at : at + _CHUNK])
            for at in range(0, len(left), _CHUNK)
        )
    if not same:
        raise LoadError(
            f"tie_word_embeddings is true, but the checkpoint has a tensor {_HEAD} that differs "
            f"from {_EMBEDDING}"
        )


def end_ids(*configs: Mapping[str, Any]) -> frozenset[int]:
    """The union of all ``eos_token_id``: a number, a list, or none, in each configuration."""
    found: set[int] = set()
    for config in configs:
        value = config.get("eos_token_id")
        values = value if isinstance(value, list) else [] if value is None else [value]
        for token in values:
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise LoadError(f"eos_token_id is {value!r}")
            found.add(token)
    return frozenset(found)


def generation_defaults(config: Mapping[str, Any]) -> Mapping[str, float]:
    """The sampling parameters that ``generation_config.json`` advises."""
    defaults = {name: config[name] for name in _DEFAULTS if config.get(name) is not None}
    for name, value in defaults.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise LoadError(f"generation_config.json: {name} is {value!r}, not a number")
    try:
        SamplingParams(**defaults).check(1)
    except RequestError as error:
        raise LoadError(f"generation_config.json: {error}") from error
    return defaults
