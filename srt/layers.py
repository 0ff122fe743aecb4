"""The small operations in plain torch: the reference of ``Ops``, on any device.

Shapes as in ``kernels/ops.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .kernels.int4 import Matrix, plain
from .kernels.ops import Head, Linear


class TorchOps:
    """``Ops`` as torch's own operations."""

    def linear(self, weight_OI: Matrix, bias_O: Tensor | None) -> Linear:
        """See ``Ops``."""
        values_OI = plain(weight_OI)
        return lambda x_TI: functional.linear(x_TI, values_OI, bias_O)

    def head(self, weight_VE: Tensor) -> Head:
        """See ``Ops``."""
        return Head(self.linear(weight_VE, None), weight_VE)

    def add_rms_norm(
        self, residual_TE: Tensor, delta_TE: Tensor | None, weight_E: Tensor, eps: float
    ) -> Tensor:
        """See ``Ops``."""
        if delta_TE is not None:
            residual_TE += delta_TE
        return _rms_norm(residual_TE, weight_E, eps).to(weight_E.dtype)

    def rope(self, x_THD: Tensor, cos_TD2: Tensor, sin_TD2: Tensor) -> None:
        """See ``Ops``."""
        half = x_THD.shape[-1] // 2
        left, right = x_THD[..., :half].float(), x_THD[..., half:].float()
        cos, sin = cos_TD2[:, None, :], sin_TD2[:, None, :]
        turned = torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
        x_THD.copy_(turned)

    def head_norm(self, x_THD: Tensor, weight_D: Tensor, eps: float) -> None:
        """See ``Ops``."""
        x_THD.copy_(_rms_norm(x_THD.float(), weight_D, eps))

    def silu_mul(self, gate_up_T2F: Tensor) -> Tensor:
        """See ``Ops``."""
        gate_TF, up_TF = gate_up_T2F.chunk(2, dim=-1)
        return functional.silu(gate_TF) * up_TF


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x ** 2) + eps) * weight over the last dimension, in float32."""
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * scale * weight.float()
