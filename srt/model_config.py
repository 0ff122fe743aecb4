"""What a decoder-only transformer looks like, read from a checkpoint's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding. ``factor`` and what follows matter to the scaled kinds alone.

    ``original_positions`` is the context that the model was trained with before scaling;
    ``attention_factor`` multiplies the rotated vectors (yarn).
    """

    kind: Literal["plain", "linear", "llama3", "yarn"] = "plain"
    theta: float = 10000.0
    factor: float = 1.0
    original_positions: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of one model. All sizes are counts of elements.

    ``max_positions`` is the longest context that the model (with its RoPE scaling) supports.
    """

    architecture: Literal["llama", "qwen2", "qwen3"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    norm_eps: float
    max_positions: int
    rope: RopeConfig
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied_embeddings: bool = False
