"""RoPE scaling in all the ways that Hugging Face configurations have spelled it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import LoadError
from ..model_config import RopeConfig

_DEFAULT_THETA = 10000.0
_ORIGINAL = "original_max_position_embeddings"
_COMMON = frozenset({"type", "rope_type", "rope_theta", "partial_rotary_factor", "finetuned"})
_KNOWN: Mapping[str, frozenset[str]] = {
    "default": _COMMON | {"factor", _ORIGINAL},
    "linear": _COMMON | {"factor", _ORIGINAL},
    "llama3": _COMMON | {"factor", _ORIGINAL, "low_freq_factor", "high_freq_factor"},
    "yarn": _COMMON
    | {"factor", _ORIGINAL, "attention_factor", "beta_fast", "beta_slow"}
    | {"mscale", "mscale_all_dim", "truncate"},
}


def rope_config(config: Mapping[str, Any], max_positions: int) -> tuple[RopeConfig, int]:
    """RoPE of a ``config.json``, and the longest context that the model supports with it.

    ``max_positions`` is the configuration's ``max_position_embeddings``. It is the limit for plain,
    ``linear`` and ``llama3``, whose checkpoints state what they were made for; for ``yarn``, which
    is often switched on afterwards, the limit is ``factor`` x the original context. Where a yarn
    block lacks the original context it is ``max_position_embeddings``, as in transformers.

    ``LoadError`` names a kind or a key that is not known, and a key that is missing.
    """
    block = _block(config)
    kind = _kind(block)
    if kind not in _KNOWN:
        raise LoadError(f"RoPE type {kind!r} is not supported; supported are {', '.join(_KNOWN)}")
    unknown = sorted(set(block) - _KNOWN[kind])
    if unknown:
        raise LoadError(f"RoPE parameter {unknown[0]!r} is not known for the type {kind!r}")
    for partial in (block.get("partial_rotary_factor"), config.get("partial_rotary_factor")):
        if partial not in (None, 1, 1.0):
            raise LoadError(f"partial_rotary_factor {partial} is not supported, only 1")
    theta = block.get("rope_theta") or config.get("rope_theta") or _DEFAULT_THETA
    theta = _number({"rope_theta": theta}, "rope_theta")
    original = _optional(config, _ORIGINAL) or _optional(block, _ORIGINAL)
    if kind == "default":
        return RopeConfig(theta=theta), max_positions
    if kind == "linear":
        factor = _number(block, "factor", least=1.0)
        return RopeConfig(kind="linear", theta=theta, factor=factor), max_positions
    if kind == "llama3":
        return _llama3(block, theta, original), max_positions
    return _yarn(block, theta, original or max_positions, max_positions)


def _block(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scaling block: ``rope_parameters`` (transformers 5), or ``rope_scaling``."""
    old, new = config.get("rope_scaling"), config.get("rope_parameters")
    for block in (old, new):
        if block is not None and not isinstance(block, Mapping):
            raise LoadError(f"the RoPE parameters are {block!r}, not an object")
    if old and new:
        raise LoadError("config.json has both rope_scaling and rope_parameters")
    block = old or new or {}
    for value in block.values():
        if isinstance(value, Mapping):
            raise LoadError("RoPE parameters that differ between layers are not supported")
    return block


def _kind(block: Mapping[str, Any]) -> str:
    kinds = {block[key] for key in ("rope_type", "type") if block.get(key) is not None}
    if len(kinds) > 1:
        raise LoadError(f"the RoPE parameters name two types: {', '.join(sorted(map(str, kinds)))}")
    if not kinds and block.get("factor") is not None:
        raise LoadError("the RoPE parameters have a factor and no rope_type")
    return str(kinds.pop()) if kinds else "default"


def _llama3(block: Mapping[str, Any], theta: float, original: float | None) -> RopeConfig:
    if original is None:
        raise LoadError(f"RoPE type 'llama3' lacks {_ORIGINAL}")
    return RopeConfig(
        kind="llama3",
        theta=theta,
        factor=_number(block, "factor", least=1.0),
        original_positions=int(original),
        low_freq_factor=_number(block, "low_freq_factor"),
        high_freq_factor=_number(block, "high_freq_factor"),
    )


def _yarn(
    block: Mapping[str, Any], theta: float, original: float, max_positions: int
) -> tuple[RopeConfig, int]:
    if block.get("factor") is None:
        factor = max_positions / original
    else:
        factor = _number(block, "factor", least=1.0)
    rope = RopeConfig(
        kind="yarn",
        theta=theta,
        factor=factor,
        original_positions=int(original),
        beta_fast=_optional(block, "beta_fast") or 32.0,
        beta_slow=_optional(block, "beta_slow") or 1.0,
        attention_factor=_optional(block, "attention_factor"),
        mscale=_optional(block, "mscale"),
        mscale_all_dim=_optional(block, "mscale_all_dim"),
        truncate=bool(block.get("truncate", True)),
    )
    return rope, int(factor * original)


def _optional(block: Mapping[str, Any], key: str) -> float | None:
    return None if block.get(key) is None else _number(block, key)


def _number(block: Mapping[str, Any], key: str, least: float = 0.0) -> float:
    value = block.get(key)
    if value is None:
        raise LoadError(f"the RoPE parameters lack {key}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise LoadError(f"RoPE parameter {key} is {value!r}; it must be a number from {least:g}")
    return float(value)
