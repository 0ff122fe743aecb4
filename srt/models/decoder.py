"""The decoder: Llama, Mistral, Qwen2 and Qwen3 are one network with different switches.

Shapes: T tokens of a step, S selected tokens, E hidden size, C concatenated query, key and value
channels, H query heads, K key/value heads, D head size, F intermediate size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..attention import AttentionBackend
from ..errors import LoadError
from ..kernels.int4 import Matrix, joined
from ..kernels.ops import Linear, Ops, Rows
from ..model_config import ModelConfig
from .rope import rope_tables

Weights = Iterable[tuple[str, Matrix]]


class _Layer(NamedTuple):
    norm_E: Tensor
    qkv: Linear
    q_norm_D: Tensor | None
    k_norm_D: Tensor | None
    out: Linear
    mlp_norm_E: Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    """A model with its weights. Keys and values live in the attention backend's pool.

    ``weights`` are the tensors of ``expected_tensors(config)`` in that order; each is taken over by
    the product it belongs to as soon as that is complete, so that a weight is in memory once.
    ``LoadError`` names a tensor that does not come, or that no part of the model takes.
    ``positions`` bounds the positions that can be asked for.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        ops: Ops,
        attention: AttentionBackend,
        positions: int | None = None,
    ) -> None:
        self.config = config
        self._ops = ops
        self._attention = attention
        tensors = _Tensors(weights)
        self._embedding_VE = tensors.take("model.embed_tokens.weight")
        self._norm_E = tensors.take("model.norm.weight")
        tied = config.tied_embeddings
        self._head = ops.head(self._embedding_VE if tied else tensors.take("lm_head.weight"))
        self._layers = [self._layer(tensors, i) for i in range(config.n_layers)]
        tensors.end()
        device = self._embedding_VE.device
        count = config.max_positions if positions is None else positions
        self._cos_PD2, self._sin_PD2 = rope_tables(config.rope, config.head_dim, count, device)

    def forward(self, ids_T: Tensor, positions_T: Tensor) -> Tensor:
        """Hidden states after the last norm, [T, E]; the attention backend has its plan by now."""
        ops, eps = self._ops, self.config.norm_eps
        hidden_TE = functional.embedding(ids_T, self._embedding_VE).float()
        cos_TD2, sin_TD2 = self._cos_PD2[positions_T], self._sin_PD2[positions_T]
        delta_TE: Tensor | None = None
        for index, layer in enumerate(self._layers):
            x_TE = ops.add_rms_norm(hidden_TE, delta_TE, layer.norm_E, eps)
            delta_TE = self._attend(index, layer, x_TE, cos_TD2, sin_TD2)
            x_TE = ops.add_rms_norm(hidden_TE, delta_TE, layer.mlp_norm_E, eps)
            delta_TE = layer.down(ops.silu_mul(layer.gate_up(x_TE)))
        return ops.add_rms_norm(hidden_TE, delta_TE, self._norm_E, eps)

    def logits(self, hidden_SE: Tensor) -> Tensor:
        """float32 [S, V]; but for float32 the largest of each row are computed again, in it."""
        rough_SV = self._head.product(hidden_SE)
        if hidden_SE.dtype == torch.float32:
            return rough_SV
        return refined(rough_SV.float(), hidden_SE, self._head.rows)

    def _attend(
        self, index: int, layer: _Layer, x_TE: Tensor, cos_TD2: Tensor, sin_TD2: Tensor
    ) -> Tensor:
        config, ops = self.config, self._ops
        heads, kv_heads, size = config.n_heads, config.n_kv_heads, config.head_dim
        qkv_THD = layer.qkv(x_TE).view(len(x_TE), heads + 2 * kv_heads, size)
        q_THD = qkv_THD[:, :heads]
        k_TKD = qkv_THD[:, heads : heads + kv_heads]
        if layer.q_norm_D is not None and layer.k_norm_D is not None:
            ops.head_norm(q_THD, layer.q_norm_D, config.norm_eps)
            ops.head_norm(k_TKD, layer.k_norm_D, config.norm_eps)
        ops.rope(qkv_THD[:, : heads + kv_heads], cos_TD2, sin_TD2)
        o_THD = self._attention.run(index, q_THD, k_TKD, qkv_THD[:, heads + kv_heads :])
        return layer.out(o_THD.view(len(x_TE), heads * size))

    def _layer(self, tensors: _Tensors, index: int) -> _Layer:
        config, ops, at = self.config, self._ops, f"model.layers.{index}."
        attn, mlp = at + "self_attn.", at + "mlp."
        qkv = ops.linear(
            *tensors.fused([attn + f"{x}_proj" for x in ("q", "k", "v")], config.qkv_bias)
        )
        out = ops.linear(*tensors.fused([attn + "o_proj"], config.out_bias))
        gate_up = ops.linear(*tensors.fused([mlp + "gate_proj", mlp + "up_proj"], config.mlp_bias))
        down = ops.linear(*tensors.fused([mlp + "down_proj"], config.mlp_bias))
        return _Layer(
            tensors.take(at + "input_layernorm.weight"),
            qkv,
            tensors.take(attn + "q_norm.weight") if config.qk_norm else None,
            tensors.take(attn + "k_norm.weight") if config.qk_norm else None,
            out,
            tensors.take(at + "post_attention_layernorm.weight"),
            gate_up,
            down,
        )


def refined(logits_SV: Tensor, hidden_SE: Tensor, head_VE: Rows) -> Tensor:
    """Replaces what may be the largest logit of a row by its float32 value, in place.

    A product in bfloat16 rounds its results to 8 bits: logits of 16 to 32 to a multiple of 1/8,
    which makes ties of tokens whose probabilities differ by a tenth. Those within two such steps
    of a row's best, a few for most rows, are worth a dot product of their own. Whether a row is
    refined depends on that row alone: a request's tokens must not change with its neighbours.
    """
    best_S1 = logits_SV.amax(-1, keepdim=True)
    near_NS, near_NV = (logits_SV >= best_S1 - best_S1.abs() * 2.0**-6).nonzero(as_tuple=True)
    near_S = torch.bincount(near_NS, minlength=len(logits_SV))
    few_N = near_S[near_NS] <= MOST_REFINED  # a row with more says nothing anyway
    near_NS, near_NV = near_NS[few_N], near_NV[few_N]
    exact_N = (hidden_SE[near_NS].float() * head_VE[near_NV].float()).sum(-1)
    logits_SV[near_NS, near_NV] = exact_N
    return logits_SV


MOST_REFINED = 64
"""Logits of one row that are computed again; a row with more of them is left as it is."""


class _Tensors:
    """Takes tensors by name from a stream of them, keeping only those that came too early."""

    def __init__(self, weights: Weights) -> None:
        self._stream = iter(weights)
        self._early: dict[str, Matrix] = {}

    def take(self, name: str) -> Tensor:
        """The tensor, which is the caller's from now on."""
        tensor = self._take(name)
        assert isinstance(tensor, Tensor), f"{name} is no plain tensor"
        return tensor

    def _take(self, name: str) -> Matrix:
        while name not in self._early:
            found, tensor = next(self._stream, (None, None))
            if found is None or tensor is None:
                raise LoadError(f"the tensor {name} is missing")
            self._early[found] = tensor
        return self._early.pop(name)

    def end(self) -> None:
        """Raises where tensors are left that nothing took."""
        surplus = [*self._early, *(name for name, _ in self._stream)]
        if surplus:
            raise LoadError(f"no part of the model takes the tensor {surplus[0]}")

    def fused(self, names: list[str], has_bias: bool) -> tuple[Matrix, Tensor | None]:
        """Weight and bias of several products of the same input as one."""
        weight = joined([self._take(name + ".weight") for name in names])
        bias = torch.cat([self.take(name + ".bias") for name in names]) if has_bias else None
        return weight, bias
