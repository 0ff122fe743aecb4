"""Products of 4-bit weights as they are stored: 4 bits for few rows, bfloat16 for many.

A product of 4-bit weights reads a quarter of the bytes, and its arithmetic costs more with every
row; that of bfloat16 hardly costs more for 16 rows than for one. Both are products of the same
weights, and differ in rounding alone. From how many rows the second is faster depends on processor
and shape: it is measured.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.cpu_ops import PackedProducts
from ..kernels.int4 import GROUP, Int4, Matrix, plain
from ..kernels.ops import Head, Linear

OUTPUTS = 16
"""torch's 4-bit product takes outputs in multiples of this."""


class StoredProduct:
    """One weight in both forms. ``limit`` is the most rows that go to the 4-bit product."""

    __slots__ = ("few", "limit", "many", "nbytes", "size")

    def __init__(self, weight: Int4, bias_O: Tensor | None, many: Linear) -> None:
        self.size = weight.size
        self.nbytes = 2 * weight.codes_OI.numel()
        """Bytes of the bfloat16 form."""
        self.few = int4_product(weight, bias_O)
        self.many = many
        self.limit = 0

    def __call__(self, x_TI: Tensor) -> Tensor:
        return self.few(x_TI) if len(x_TI) <= self.limit else self.many(x_TI)


def int4_product(weight: Int4, bias_O: Tensor | None) -> Linear:
    """torch's own product of 4-bit weights with bfloat16 activations."""
    packed = torch._convert_weight_to_int4pack_for_cpu(weight.codes_OI.int(), 1)
    scales = torch.stack([weight.scale_OG, weight.zero_OG], -1)
    scales_GO2 = scales.transpose(0, 1).contiguous()
    product = torch.ops.aten._weight_int4pack_mm_for_cpu.default

    def linear(x_TI: Tensor) -> Tensor:
        y_TO: Tensor = product(x_TI, packed, GROUP, scales_GO2)
        return y_TO if bias_O is None else y_TO.add_(bias_O)

    return linear


class StoredProducts:
    """``Products`` that keep 4-bit weights; whatever else there is becomes bfloat16.

    ``made`` are the 4-bit ones, all of which use the bfloat16 product until limits are set.
    ``others`` counts layers that are not among them: their outputs are no multiple of 16, or a part
    of them is stored in another format.
    """

    def __init__(self) -> None:
        self.made: list[StoredProduct] = []
        self.others = 0
        self._packed = PackedProducts()

    def linear(self, weight_OI: Matrix, bias_O: Tensor | None) -> Linear:
        """See ``Products``."""
        many = self._packed.linear(weight_OI, bias_O)
        if not isinstance(weight_OI, Int4) or weight_OI.size[0] % OUTPUTS:
            self.others += 1
            return many
        self.made.append(StoredProduct(weight_OI, bias_O, many))
        return self.made[-1]

    def head(self, weight_VE: Tensor) -> Head:
        """See ``Products``."""
        return self._packed.head(plain(weight_VE))

    def settle(self, limits: dict[tuple[int, int], int]) -> None:
        """Sets the limit of each size; 4-bit forms that are of no use are given up."""
        for product in self.made:
            product.limit = limits[product.size]
            if product.limit == 0:
                product.few = product.many
