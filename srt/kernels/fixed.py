"""Products of one shape whatever the step: what a row gives does not depend on its neighbours.

Matrix products of different row counts add up in different orders. Here all rows go through the
product in blocks of the same number of rows, the last one filled up with zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .int4 import Matrix
from .ops import Head, Linear, Products

ROWS = 32
"""Of a block. Fewer would be less for one stream, and more for prompts: each block reads all
weights."""


class FixedProducts:
    """``Products`` of others, in blocks of ``ROWS`` rows."""

    def __init__(self, products: Products) -> None:
        self._products = products

    def linear(self, weight_OI: Matrix, bias_O: Tensor | None) -> Linear:
        """See ``Products``."""
        return fixed(self._products.linear(weight_OI, bias_O))

    def head(self, weight_VE: Tensor) -> Head:
        """See ``Products``."""
        head = self._products.head(weight_VE)
        return Head(fixed(head.product), head.rows)


def fixed(product: Linear) -> Linear:
    """A product in blocks of ``ROWS`` rows."""

    def linear(x_TI: Tensor) -> Tensor:
        count = len(x_TI)
        missing = -count % ROWS
        if missing:
            x_TI = torch.cat((x_TI, x_TI.new_zeros(missing, x_TI.shape[1])))
        if len(x_TI) == ROWS:
            return product(x_TI)[:count]
        return torch.cat([product(x_TI[at : at + ROWS]) for at in range(0, len(x_TI), ROWS)])[
            :count
        ]

    return linear
