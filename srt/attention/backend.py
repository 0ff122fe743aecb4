"""The seam between a decoder's layers and the KV pool.

Shapes: T tokens of a step (rows in order, each row's tokens in order), H query heads, K key/value
heads (H a multiple of K), D head size.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ..batch import Batch


class AttentionBackend(Protocol):
    """Causal attention of a step's tokens over their rows' pages."""

    def plan(self, batch: Batch) -> None:
        """Works out, once a step, what each layer's ``run`` needs of page tables and groups."""
        ...

    def run(self, layer: int, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        """Stores k and v in the pool at the step's slots, then attends; returns o_THD, contiguous.

        The inputs may be strided views of one product's output. Position p of a row sees positions
        0 to p of that row. Scale is ``D ** -0.5``.
        """
        ...
