"""The small operations of a decoder, and the seam that lets each device bring its own.

Shapes: T tokens of a step, E hidden size, I/O a product's inputs/outputs, H query heads, K
key/value heads, D head size, F intermediate size, N chosen tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor

from .int4 import Matrix

Linear = Callable[[Tensor], Tensor]
"""x_TI -> y_TO, with the weight laid out as the device likes it."""


class Rows(Protocol):
    """A matrix that gives its rows by index: a tensor, or what computes them when asked."""

    def __getitem__(self, index_N: Tensor, /) -> Tensor: ...


class Head(NamedTuple):
    """The output layer: the product for all logits, and its effective weights, a row a token."""

    product: Linear
    rows: Rows


class Products(Protocol):
    """Makes the matrix products of a model: the part of ``Ops`` that quantisation replaces."""

    def linear(self, weight_OI: Matrix, bias_O: Tensor | None) -> Linear:
        """Takes a weight over (it may be packed and the original freed) and returns its product."""
        ...

    def head(self, weight_VE: Tensor) -> Head:
        """The output layer of a weight that may also be the embedding, and stays as it is."""
        ...


class Ops(Products, Protocol):
    """What a decoder needs beside attention. Each has a plain reference in ``TorchOps``."""

    def add_rms_norm(
        self, residual_TE: Tensor, delta_TE: Tensor | None, weight_E: Tensor, eps: float
    ) -> Tensor:
        """Adds ``delta`` to ``residual`` in place and returns the sum's RMS norm times weight.

        The residual stream is float32; ``delta`` and the result have the model's dtype.
        """
        ...

    def rope(self, x_THD: Tensor, cos_TD2: Tensor, sin_TD2: Tensor) -> None:
        """Rotates pairs ``(i, i + D/2)`` in place; ``x`` may be a view, cos/sin are float32."""
        ...

    def head_norm(self, x_THD: Tensor, weight_D: Tensor, eps: float) -> None:
        """RMS norm of each head, in place (Qwen3); ``x`` may be a strided view."""
        ...

    def silu_mul(self, gate_up_T2F: Tensor) -> Tensor:
        """``silu(gate) * up`` of the two halves of the last dimension."""
        ...
