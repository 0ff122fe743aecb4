"""``Ops`` for the CPU: compiled small operations, and oneDNN products with weights laid out once.

Shapes as in ``ops.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from . import small
from .compiled import ready
from .int4 import Matrix, plain
from .ops import Head, Linear, Products

ROWS_HINT = 32
"""oneDNN chooses a weight's layout for a number of rows. That for 32 was as good as any from 1 to
512 rows in bfloat16, and up to 1.4 times as fast as that for 1 row in float32."""

KERNELS = (small.add_rms_norm, small.head_norm, small.rope, small.silu_mul)


class PackedProducts:
    """``Products`` of float32 or bfloat16 weights, which are kept in oneDNN's layout alone."""

    def linear(self, weight_OI: Matrix, bias_O: Tensor | None) -> Linear:
        """See ``Products``."""
        values_OI = plain(weight_OI)
        if not packs(values_OI.dtype):
            return lambda x_TI: functional.linear(x_TI, values_OI, bias_O)
        packed = torch.ops.mkldnn._reorder_linear_weight(values_OI.contiguous(), ROWS_HINT)
        product = torch.ops.mkldnn._linear_pointwise.default
        none: list[float] = []

        def linear(x_TI: Tensor) -> Tensor:
            y_TO: Tensor = product(x_TI, packed, bias_O, "none", none, "")
            return y_TO

        return linear

    def head(self, weight_VE: Tensor) -> Head:
        """See ``Products``."""
        return Head(self.linear(weight_VE, None), weight_VE)


class CpuOps:
    """``Ops`` for tensors in main memory, float32 or bfloat16."""

    def __init__(self, products: Products | None = None) -> None:
        """Loads the kernels, or compiles them (a second) where no cache has them yet."""
        self._products = products or PackedProducts()
        for kernel in KERNELS:
            ready(kernel)

    def linear(self, weight_OI: Matrix, bias_O: Tensor | None) -> Linear:
        """See ``Ops``."""
        return self._products.linear(weight_OI, bias_O)

    def head(self, weight_VE: Tensor) -> Head:
        """See ``Ops``."""
        return self._products.head(weight_VE)

    def add_rms_norm(
        self, residual_TE: Tensor, delta_TE: Tensor | None, weight_E: Tensor, eps: float
    ) -> Tensor:
        """See ``Ops``."""
        rows, size = residual_TE.shape
        out_TE = torch.empty(rows, size, dtype=weight_E.dtype)
        assert residual_TE.dtype == torch.float32
        assert residual_TE.is_contiguous()
        delta = 0
        if delta_TE is not None:
            assert delta_TE.dtype == weight_E.dtype
            assert delta_TE.is_contiguous()
            delta = delta_TE.data_ptr()
        small.add_rms_norm(
            weight_E.dtype == torch.bfloat16,
            residual_TE.data_ptr(),
            delta,
            weight_E.data_ptr(),
            out_TE.data_ptr(),
            rows,
            size,
            eps,
        )
        return out_TE

    def rope(self, x_THD: Tensor, cos_TD2: Tensor, sin_TD2: Tensor) -> None:
        """See ``Ops``. A token's heads must lie side by side."""
        tokens, heads, size = x_THD.shape
        assert x_THD.stride()[1:] == (size, 1)
        assert cos_TD2.is_contiguous()
        assert sin_TD2.is_contiguous()
        small.rope(
            x_THD.dtype == torch.bfloat16,
            x_THD.data_ptr(),
            cos_TD2.data_ptr(),
            sin_TD2.data_ptr(),
            tokens,
            x_THD.stride(0),
            heads,
            size,
        )

    def head_norm(self, x_THD: Tensor, weight_D: Tensor, eps: float) -> None:
        """See ``Ops``. A token's heads must lie side by side."""
        tokens, heads, size = x_THD.shape
        assert x_THD.stride()[1:] == (size, 1)
        assert weight_D.dtype == x_THD.dtype
        small.head_norm(
            x_THD.dtype == torch.bfloat16,
            x_THD.data_ptr(),
            weight_D.data_ptr(),
            tokens,
            x_THD.stride(0),
            heads,
            size,
            eps,
        )

    def silu_mul(self, gate_up_T2F: Tensor) -> Tensor:
        """See ``Ops``."""
        rows, double = gate_up_T2F.shape
        assert gate_up_T2F.is_contiguous()
        out_TF = torch.empty(rows, double // 2, dtype=gate_up_T2F.dtype)
        small.silu_mul(
            gate_up_T2F.dtype == torch.bfloat16,
            gate_up_T2F.data_ptr(),
            out_TF.data_ptr(),
            rows,
            double // 2,
        )
        return out_TF


def packs(dtype: torch.dtype) -> bool:
    """Whether this machine's oneDNN multiplies weights of this type in a layout of its own."""
    if not torch._C._has_mkldnn:
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
