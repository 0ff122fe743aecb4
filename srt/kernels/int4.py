"""Weights of 4 bits in groups of 32: what blocks of a file become, and what torch multiplies.

Shapes: O outputs, I inputs, G groups of 32 inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

GROUP = 32


class Int4(NamedTuple):
    """``(codes - 8) * scale + zero``: codes from 0 to 15 as uint8, scale and zero in bfloat16.

    The form of ``torch._weight_int4pack_mm_for_cpu``, whose scales are bfloat16: they are rounded
    here, before anything is computed, so that every product is one of the same weights.
    """

    codes_OI: Tensor
    scale_OG: Tensor
    zero_OG: Tensor

    @property
    def size(self) -> tuple[int, int]:
        """Outputs and inputs."""
        outputs, inputs = self.codes_OI.shape
        return outputs, inputs

    def values(self) -> Tensor:
        """The weights as float32 [O, I]."""
        codes_OGN = self.codes_OI.view(*self.scale_OG.shape, GROUP).float() - 8
        values_OGN = codes_OGN * self.scale_OG.float()[..., None] + self.zero_OG.float()[..., None]
        return values_OGN.view(self.codes_OI.shape)


Matrix = Tensor | Int4
"""A weight [O, I], as the products of a decoder get it."""


def joined(parts: Sequence[Matrix]) -> Matrix:
    """Weights of the same input as one. 4 bits where all of them are, or else bfloat16."""
    four_bit = [part for part in parts if isinstance(part, Int4)]
    if len(four_bit) == len(parts):
        return Int4(*(torch.cat(tensors) for tensors in zip(*four_bit, strict=True)))
    return torch.cat([plain(part) for part in parts])


def plain(weight: Matrix) -> Tensor:
    """The weight as a tensor: that which it is, or the bfloat16 nearest to its values."""
    return weight.values().bfloat16() if isinstance(weight, Int4) else weight
