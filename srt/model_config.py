"""What a decoder-only transformer looks like, read from a checkpoint's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .errors import LoadError

Architecture = Literal["llama", "qwen2", "qwen3"]


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding. ``factor`` and what follows matter to the scaled kinds alone.

    ``original_positions`` is the context that the model was trained with before scaling;
    ``attention_factor`` multiplies the rotated vectors (yarn). ``freq_factors`` (one for each pair
    of dimensions, ``head_dim // 2`` of them) divide the plain inverse frequencies: this is how GGUF
    files store the llama3 scaling; ``kind`` is then ``"plain"``.
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
    freq_factors: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of one model. All sizes are counts of elements.

    ``max_positions`` is the longest context that the model (with its RoPE scaling) supports.
    ``sliding_window`` is the number of positions that some layer's attention is limited to.
    """

    architecture: Architecture
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
    sliding_window: int | None = None

    def __post_init__(self) -> None:
        """Raises ``LoadError`` for a shape that no decoder has."""
        if self.n_heads % self.n_kv_heads:
            raise LoadError(
                f"{self.n_heads} query heads cannot share {self.n_kv_heads} key/value heads evenly"
            )
        if self.head_dim % 2:
            raise LoadError(f"a head of {self.head_dim} elements cannot be rotated in pairs")

    def context(self, asked: int | None = None) -> int:
        """The context to serve: what was asked for, or all that the model supports.

        Raises ``LoadError`` where that is more than the model supports, or more than the window of
        a layer with sliding-window attention, which is not implemented: within the window it is
        the same as full attention.
        """
        context = self.max_positions if asked is None else asked
        if context < 1:
            raise LoadError(f"a context of {context} tokens was asked for; it must be 1 or more")
        if context > self.max_positions:
            raise LoadError(
                f"a context of {context} tokens was asked for, and the model supports "
                f"{self.max_positions}"
            )
        if self.sliding_window is not None and context > self.sliding_window:
            raise LoadError(
                f"the model's attention slides over a window of {self.sliding_window} tokens, "
                f"which is less than the context of {context}; serve it with a context length of "
                f"{self.sliding_window} or less"
            )
        return context


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a model, under its canonical (Hugging Face) names.

    A tied head is not among them: it is the embedding.
    """
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, config.hidden_size),
        "model.norm.weight": (config.hidden_size,),
    }
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    for layer in range(config.n_layers):
        shapes.update(_layer_tensors(config, f"model.layers.{layer}"))
    return shapes


def _layer_tensors(config: ModelConfig, prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    q, kv = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    products = (
        ("self_attn.q_proj", q, hidden, config.qkv_bias),
        ("self_attn.k_proj", kv, hidden, config.qkv_bias),
        ("self_attn.v_proj", kv, hidden, config.qkv_bias),
        ("self_attn.o_proj", hidden, q, config.out_bias),
        ("mlp.gate_proj", inner, hidden, config.mlp_bias),
        ("mlp.up_proj", inner, hidden, config.mlp_bias),
        ("mlp.down_proj", hidden, inner, config.mlp_bias),
    )
    for name, rows, columns, bias in products:
        yield f"{prefix}.{name}.weight", (rows, columns)
        if bias:
            yield f"{prefix}.{name}.bias", (rows,)
    yield f"{prefix}.input_layernorm.weight", (hidden,)
    yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
    if config.qk_norm:
        yield f"{prefix}.self_attn.q_norm.weight", (config.head_dim,)
        yield f"{prefix}.self_attn.k_norm.weight", (config.head_dim,)
