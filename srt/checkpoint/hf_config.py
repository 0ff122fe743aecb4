"""``config.json`` of a Hugging Face checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ..errors import LoadError
from ..model_config import Architecture, ModelConfig
from .rope import rope_config

T = TypeVar("T")

_ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}
_CLASSES = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)


def merged(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with the block of its language model, if nested, laid over the top level."""
    inner = config.get("text_config")
    if inner is None:
        return config
    if not isinstance(inner, Mapping):
        raise LoadError(f"config.json: text_config is {inner!r}, not an object")
    outer = {key: value for key, value in config.items() if key != "architectures"}
    return {**outer, **inner}


def hf_config(raw: Mapping[str, Any]) -> ModelConfig:
    """The model's shape. ``LoadError`` for an architecture, a quantisation or a feature that is not
    supported, by name, and for a key that is missing or of a wrong type."""
    config = merged(raw)
    _refuse_quantized(raw, config)
    architecture = _architecture(config)
    kind = config["model_type"]
    n_heads = _get(config, "num_attention_heads", int)
    hidden = _get(config, "hidden_size", int)
    head_dim = _get(config, "head_dim", int, _head_dim(kind, hidden, n_heads))
    n_layers = _get(config, "num_hidden_layers", int)
    activation = _get(config, "hidden_act", str, "silu")
    if activation not in ("silu", "swish"):
        raise LoadError(f"hidden_act {activation!r} is not supported, only silu")
    rope, positions = rope_config(config, _get(config, "max_position_embeddings", int))
    biased = kind in ("llama", "qwen3") and _get(config, "attention_bias", bool, False)
    return ModelConfig(
        architecture=architecture,
        vocab_size=_get(config, "vocab_size", int),
        hidden_size=hidden,
        intermediate_size=_get(config, "intermediate_size", int),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=_get(config, "num_key_value_heads", int, n_heads if kind == "llama" else None),
        head_dim=head_dim,
        norm_eps=_get(config, "rms_norm_eps", float, 1e-6),
        max_positions=positions,
        rope=rope,
        qkv_bias=kind == "qwen2" or biased,
        out_bias=biased,
        mlp_bias=kind == "llama" and _get(config, "mlp_bias", bool, False),
        qk_norm=kind == "qwen3",
        tied_embeddings=_get(config, "tie_word_embeddings", bool, False),
        sliding_window=_window(config, kind, n_layers),
    )


def _head_dim(kind: str, hidden: int, n_heads: int) -> int | None:
    """The size of a head where the configuration does not state it; ``None``: it must."""
    if kind == "qwen3":
        return 128
    return None if hidden % n_heads else hidden // n_heads


def _architecture(config: Mapping[str, Any]) -> Architecture:
    names = config.get("architectures") or []
    if not isinstance(names, list):
        raise LoadError(f"config.json: architectures is {names!r}; it must be a list of names")
    for name in names:
        if name not in _CLASSES:
            raise LoadError(
                f"architecture {name} is not supported; supported are {', '.join(sorted(_CLASSES))}"
            )
    kind = _get(config, "model_type", str)
    if kind not in _ARCHITECTURES:
        raise LoadError(
            f"model_type {kind!r} is not supported; supported are {', '.join(_ARCHITECTURES)}"
        )
    return _ARCHITECTURES[kind]


def _refuse_quantized(*configs: Mapping[str, Any]) -> None:
    for config in configs:
        for key in ("quantization_config", "compression_config"):
            block = config.get(key)
            if block is not None:
                method = block.get("quant_method") if isinstance(block, Mapping) else block
                raise LoadError(
                    f"{key}: quantisation method {method or 'unnamed'} is not supported"
                )


def _window(config: Mapping[str, Any], kind: str, n_layers: int) -> int | None:
    """The sliding window of the layers that have one, as transformers decides which they are."""
    if kind in ("qwen2", "qwen3"):
        if not config.get("use_sliding_window", False):
            return None
        types = config.get("layer_types")
        if types is not None and "sliding_attention" not in types:
            return None
        if types is None and config.get("max_window_layers", 28) >= n_layers:
            return None
    default = 4096 if kind in ("mistral", "qwen2", "qwen3") else None
    window = config.get("sliding_window", default)
    if window is not None and (isinstance(window, bool) or not isinstance(window, int)):
        raise LoadError(f"config.json: sliding_window is {window!r}")
    return window


def _get(config: Mapping[str, Any], key: str, kind: type[T], default: T | None = None) -> T:
    """A value of a known type; ``null`` counts as absent."""
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise LoadError(f"config.json lacks {key}")
    if kind is float and isinstance(value, int):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise LoadError(f"config.json: {key} is {value!r}, not of type {kind.__name__}")
    if kind is int and value < 1:  # type: ignore[operator]  # T is int here
        raise LoadError(f"config.json: {key} is {value!r}; it must be 1 or more")
    return value
