"""What ``--quantization`` asks for: how weights are read, and which products multiply them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..errors import LoadError
from ..kernels.int4 import Matrix
from ..kernels.ops import Products
from ..log import Log
from .blocks import BLOCK_BYTES, Stored, has_int4, int4

if TYPE_CHECKING:
    from .stored import StoredProducts

NAMES = ("none", "stored", "w8a8")


class Readable(Stored, Protocol):
    """A stored tensor that can be dequantised."""

    def read(self) -> Any: ...


class Quantization:
    """``none``: weights in the model's dtype, and the device's own products."""

    products: Products | None = None

    def matrix(self, weight: Readable) -> Matrix | None:
        """A product's weight as this quantisation wants it; None for the model's dtype."""
        return None

    def settle(self) -> None:
        """Chooses among products, once all weights are there."""

    def describe(self) -> dict[str, Any]:
        """What was chosen, for logs and ``/server_info``."""
        return {"quantization": "none"}


class _Stored(Quantization):
    products: StoredProducts

    def __init__(self) -> None:
        from .stored import StoredProducts

        self.products = StoredProducts()
        self._limits: dict[tuple[int, int], int] = {}

    def matrix(self, weight: Readable) -> Matrix | None:
        return int4(weight)

    def settle(self) -> None:
        from .crossover import limits

        if not self.products.made:
            raise LoadError("quantization 'stored': no layer is stored in 4-bit blocks throughout")
        self._limits, kept = limits(self.products.made)
        self.products.settle(self._limits)
        Log("quant").info("products chosen", measured="before" if kept else "now", **self._rows())

    def _rows(self) -> dict[str, Any]:
        sizes = sorted(self._limits.items())
        return {"int4_rows": {f"{size[0]}x{size[1]}": limit for size, limit in sizes}}

    def describe(self) -> dict[str, Any]:
        return {
            "quantization": "stored",
            "int4_layers": len(self.products.made),
            "bfloat16_layers": self.products.others,
            **self._rows(),
        }


class _W8A8(Quantization):
    def __init__(self) -> None:
        from .w8a8 import W8A8Products

        self.products = W8A8Products()

    def matrix(self, weight: Readable) -> Matrix | None:
        return torch.from_numpy(weight.read())  # bfloat16 would round twice

    def describe(self) -> dict[str, Any]:
        return {"quantization": "w8a8"}


def quantization(
    name: str, device: torch.device, dtype: torch.dtype, weights: Mapping[str, Readable]
) -> Quantization:
    """The quantisation of ``ModelOptions.quantization``; ``LoadError`` where it cannot be."""
    if name not in NAMES:
        raise LoadError(f"quantization {name!r} is not known; it must be one of {', '.join(NAMES)}")
    if name == "none":
        return Quantization()
    if device.type != "cpu":
        raise LoadError(f"quantization {name!r} runs on a CPU, not on {device}")
    if dtype != torch.bfloat16:
        kind = str(dtype).removeprefix("torch.")
        raise LoadError(f"quantization {name!r} needs the dtype bfloat16; the model's is {kind}")
    if name == "w8a8":
        return _W8A8()
    if not has_int4(weights.values()):
        there = sorted({weight.dtype for weight in weights.values() if len(weight.shape) > 1})
        raise LoadError(
            f"quantization 'stored' needs weights in {' or '.join(BLOCK_BYTES)} blocks of a GGUF "
            f"file; this checkpoint has {', '.join(there)}"
        )
    return _Stored()
