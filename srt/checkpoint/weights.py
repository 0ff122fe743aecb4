"""One tensor of a checkpoint, still in its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import LoadError
from ..model_config import ModelConfig, expected_tensors

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


class Weight:
    """A tensor that is read from its file when asked for, and not before.

    ``name`` is canonical (Hugging Face), ``shape`` counts elements, row-major. ``dtype`` says how
    it is stored: ``F32``, ``F16``, ``BF16``, or a GGUF block format such as ``Q4_1``.
    """

    __slots__ = ("_order", "_stored", "dtype", "name", "shape")

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        stored: Array,
        order: npt.NDArray[np.intp] | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self._stored = stored
        self._order = order

    @property
    def nbytes(self) -> int:
        """Size in the file."""
        return int(self._stored.nbytes)

    def stored(self) -> Array:
        """The rows as they are stored: float32, float16, uint16 (the bits of bfloat16), or
        uint8[rows, bytes of a row's blocks]. A read-only view of the file where rows keep their
        order, a copy where they had to be rearranged."""
        return self._stored if self._order is None else self._stored[self._order]

    def read(self) -> Floats:
        """The tensor as a new float32 array of ``shape``, dequantised."""
        stored = self.stored()
        if self.dtype == "BF16":
            wide = stored.astype(np.uint32)
            wide <<= 16
            return wide.view(np.float32).reshape(self.shape)
        if self.dtype in ("F32", "F16"):
            return stored.astype(np.float32).reshape(self.shape)
        return _dequantize(stored, self.dtype).reshape(self.shape)

    def __repr__(self) -> str:
        return f"Weight({self.name!r}, {self.shape}, {self.dtype})"


def _dequantize(blocks: Array, dtype: str) -> Floats:
    import gguf

    values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[dtype])
    return np.ascontiguousarray(values, np.float32)


def check_tensors(weights: Mapping[str, Weight], config: ModelConfig) -> None:
    """Raises ``LoadError`` naming what is missing, what is not understood, and what has a wrong
    shape; nothing is skipped."""
    if config.n_layers > len(weights):
        raise LoadError(
            f"the configuration has {config.n_layers} layers, the checkpoint {len(weights)} tensors"
        )
    expected = expected_tensors(config)
    missing = [name for name in expected if name not in weights]
    if missing:
        raise LoadError(f"tensors are missing from the checkpoint: {shortened(missing)}")
    surplus = [name for name in weights if name not in expected]
    if surplus:
        raise LoadError(
            f"the checkpoint has tensors that its configuration does not account for: "
            f"{shortened(surplus)}"
        )
    for name, shape in expected.items():
        if weights[name].shape != shape:
            raise LoadError(
                f"tensor {name} has the shape {list(weights[name].shape)}; "
                f"the configuration makes it {list(shape)}"
            )


def shortened(names: Iterable[str], most: int = 5) -> str:
    """A list of names for an error's text."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def quantization(weights: Mapping[str, Weight]) -> str:
    """Which types the matrices are stored in, most bytes first: ``"Q4_1, Q8_0"``."""
    sizes: dict[str, int] = {}
    for weight in weights.values():
        if len(weight.shape) > 1:
            sizes[weight.dtype] = sizes.get(weight.dtype, 0) + weight.nbytes
    return ", ".join(sorted(sizes, key=lambda kind: -sizes[kind]))
