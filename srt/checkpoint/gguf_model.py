"""A language model in a GGUF file: configuration, weights, end tokens and chat template."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..errors import LoadError
from ..model_config import Architecture, ModelConfig, RopeConfig
from .gguf_file import GgufFile, GgufTensor
from .weights import Weight, check_tensors

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_ARCHITECTURES: Mapping[str, Architecture] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_BLOCK = re.compile(r"blk\.(\d+)\.([a-z_]+)\.(weight|bias)")
_ROPE_FACTORS = "rope_freqs.weight"


def gguf_config(file: GgufFile) -> ModelConfig:
    """The model's shape; ``LoadError`` for an architecture or a feature that is not supported."""
    name = file.get("general.architecture", str)
    arch = _ARCHITECTURES.get(name)
    if arch is None:
        raise LoadError(
            f"architecture {name!r} is not supported; supported are {', '.join(_ARCHITECTURES)}"
        )
    if file.get(f"{arch}.expert_count", int, 0):
        raise LoadError("mixture-of-experts models are not supported")
    hidden = file.size(f"{arch}.embedding_length")
    n_heads = file.size(f"{arch}.attention.head_count")
    head_dim = file.size(f"{arch}.attention.key_length", hidden // n_heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        other = file.get(f"{arch}.{key}", int, head_dim)
        if other != head_dim:
            raise LoadError(f"{arch}.{key} is {other}; only the size of a head ({head_dim}) works")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise LoadError("tensors are missing from the checkpoint: token_embd.weight")
    rope, positions = _rope(file, arch)
    return ModelConfig(
        architecture=arch,
        vocab_size=embedding.shape[0],
        hidden_size=hidden,
        intermediate_size=file.size(f"{arch}.feed_forward_length"),
        n_layers=file.size(f"{arch}.block_count"),
        n_heads=n_heads,
        n_kv_heads=file.size(f"{arch}.attention.head_count_kv", n_heads),
        head_dim=head_dim,
        norm_eps=_epsilon(file.get(f"{arch}.attention.layer_norm_rms_epsilon", float)),
        max_positions=positions,
        rope=rope,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        out_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
        qk_norm=arch == "qwen3",
        tied_embeddings="output.weight" not in file.tensors,
        sliding_window=file.metadata.get(f"{arch}.attention.sliding_window") or None,
    )


def _epsilon(value: float) -> float:
    """The decimal number that was rounded to float32 when the file was written."""
    return float(str(np.float32(value)))


def _rope(file: GgufFile, arch: str) -> tuple[RopeConfig, int]:
    """RoPE, and the longest context that it supports."""
    prefix = f"{arch}.rope"
    positions = file.size(f"{arch}.context_length")
    theta = file.get(f"{prefix}.freq_base", float, 10000.0)
    factor = file.get(f"{prefix}.scaling.factor", float, 0.0) or file.get(
        f"{prefix}.scale_linear", float, 1.0
    )
    kind = file.get(f"{prefix}.scaling.type", str, "linear" if factor != 1.0 else "none")
    factors = _rope_factors(file)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return RopeConfig(theta=theta, freq_factors=factors), positions
    if kind not in ("linear", "yarn"):
        raise LoadError(f"{prefix}.scaling.type {kind!r} is not supported")
    if factors is not None:
        raise LoadError(f"{_ROPE_FACTORS} together with {kind} scaling is not supported")
    if kind == "linear":
        return RopeConfig(kind="linear", theta=theta, factor=factor), positions
    original = file.size(f"{prefix}.scaling.original_context_length")
    if f"{prefix}.scaling.yarn_log_multiplier" in file.metadata:
        raise LoadError(f"{prefix}.scaling.yarn_log_multiplier is not supported")
    extra = file.get(f"{prefix}.scaling.attn_factor", float, 1.0)
    rope = RopeConfig(
        kind="yarn",
        theta=theta,
        factor=factor,
        original_positions=original,
        beta_fast=file.get(f"{prefix}.scaling.yarn_beta_fast", float, 32.0),
        beta_slow=file.get(f"{prefix}.scaling.yarn_beta_slow", float, 1.0),
        # The format's factor comes on top of yarn's own.
        attention_factor=None if extra == 1.0 else extra * (0.1 * math.log(factor) + 1.0),
    )
    return rope, int(factor * original)


def _rope_factors(file: GgufFile) -> tuple[float, ...] | None:
    tensor = file.tensors.get(_ROPE_FACTORS)
    if tensor is None:
        return None
    values = Weight(tensor.name, tensor.shape, tensor.dtype, file.stored(tensor)).read()
    return tuple(float(value) for value in values.ravel())


def gguf_weights(file: GgufFile, config: ModelConfig) -> Mapping[str, Weight]:
    """Every tensor by its canonical name; ``LoadError`` unless they are exactly those that the
    configuration needs."""
    weights: dict[str, Weight] = {}
    for tensor in file.tensors.values():
        if tensor.name == _ROPE_FACTORS:
            if tensor.shape != (config.head_dim // 2,):
                raise LoadError(f"tensor {tensor.name} has the shape {list(tensor.shape)}")
            continue
        name = canonical_name(tensor.name)
        weights[name] = Weight(
            name, tensor.shape, tensor.dtype, file.stored(tensor), _order(tensor, name, config)
        )
    check_tensors(weights, config)
    return weights


def canonical_name(name: str) -> str:
    """Hugging Face's name of a GGUF tensor; the name itself where there is none."""
    if name in _TOP:
        return _TOP[name]
    match = _BLOCK.fullmatch(name)
    if match and match[2] in _LAYER:
        return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"
    return name


def _order(tensor: GgufTensor, name: str, config: ModelConfig) -> npt.NDArray[np.intp] | None:
    """The order of rows that undoes what the conversion of a llama did to Q and K.

    The file interleaves the halves of each head, so that RoPE rotates neighbours; we rotate
    ``(i, i + D/2)``: row ``2i`` of a head in the file is row ``i``, row ``2i + 1`` is ``i + D/2``.
    """
    if config.architecture != "llama":
        return None
    if not re.search(r"self_attn\.[qk]_proj\.", name):
        return None
    rows = tensor.shape[0]
    if rows % config.head_dim:
        return None  # the check of shapes will refuse it
    interleaved = np.arange(rows).reshape(-1, config.head_dim // 2, 2)
    return interleaved.swapaxes(1, 2).ravel()


def gguf_eos(file: GgufFile) -> frozenset[int]:
    """Every id that the file names as an end: of text, of a turn, of a message."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    values = (file.metadata.get(f"tokenizer.ggml.{key}") for key in keys)
    return frozenset(value for value in values if value is not None)


def gguf_templates(file: GgufFile) -> Mapping[str, str]:
    """Chat templates by name; the unnamed one is ``default``."""
    prefix = "tokenizer.chat_template"
    return {
        key.removeprefix(prefix).lstrip(".") or "default": value
        for key, value in file.metadata.items()
        if (key == prefix or key.startswith(prefix + ".")) and isinstance(value, str)
    }
