"""From the blocks of a GGUF file to weights of 4 bits in groups of 32.

The block formats are those of ggml: a Q4_0 block is a scale d and 32 codes, ``d * (code - 8)``; a
Q4_1 block has a minimum m beside it, ``d * code + m``, which is ``d * (code - 8) + (m + 8 d)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ..kernels.int4 import GROUP, Int4

BLOCK_BYTES = {"Q4_0": 18, "Q4_1": 20}


class Stored(Protocol):
    """A tensor that is still in its file; see ``checkpoint.Weight``."""

    shape: tuple[int, ...]
    dtype: str

    def stored(self) -> npt.NDArray[Any]: ...


def int4(weight: Stored) -> Int4 | None:
    """The blocks as they are stored, regrouped; None where the weight has no such blocks."""
    size = BLOCK_BYTES.get(weight.dtype)
    if size is None:
        return None
    outputs, inputs = weight.shape
    blocks = weight.stored().reshape(outputs, inputs // GROUP, size)
    scale = _float16(blocks, 0)
    zero = _float16(blocks, 2) + 8 * scale if weight.dtype == "Q4_1" else np.zeros_like(scale)
    packed = blocks[:, :, -GROUP // 2 :]
    codes = np.concatenate([packed & 15, packed >> 4], axis=-1).reshape(outputs, inputs)
    return Int4(
        torch.from_numpy(codes),
        torch.from_numpy(scale).bfloat16(),
        torch.from_numpy(zero).bfloat16(),
    )


def has_int4(weights: Iterable[Stored]) -> bool:
    """Whether there is any weight that ``int4`` takes."""
    return any(weight.dtype in BLOCK_BYTES and len(weight.shape) == 2 for weight in weights)


def _float16(blocks: npt.NDArray[Any], at: int) -> npt.NDArray[np.float32]:
    """The float16 number at an offset of each block."""
    bits = np.ascontiguousarray(blocks[:, :, at : at + 2])
    return bits.view(np.float16)[..., 0].astype(np.float32)
