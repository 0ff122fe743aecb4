"""Products of 8-bit weights with 8-bit activations (W8A8), through oneDNN.

Weights are symmetric, with a scale for each output; activations are quantised row by row, as they
come, to unsigned 8 bit with the zero point 128: of signed ones oneDNN has no fast product. The
products are summed exactly, as integers, so that a row's result does not depend on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import LoadError
from ..kernels import compiled, rows8
from ..kernels.cpu_ops import ROWS_HINT
from ..kernels.int4 import Matrix, plain
from ..kernels.ops import Head, Linear
from ..kernels.rows8 import ZERO_POINT, Job

LEVELS = 127
"""Steps of a weight on each side of zero."""


@dataclass(frozen=True, slots=True)
class EightBit:
    """``codes * scale``: codes int8 from -127 to 127, a float32 scale for each output."""

    codes_OI: Tensor
    scale_O: Tensor

    @classmethod
    def of(cls, weight_OI: Tensor) -> EightBit:
        """Rounds a weight; the largest of each output is kept."""
        values_OI = weight_OI.float()
        scale_O = values_OI.abs().amax(1) / LEVELS
        inverse_O = torch.where(scale_O > 0, 1 / scale_O, 0)
        codes_OI = (values_OI * inverse_O[:, None]).round_().clamp_(-LEVELS, LEVELS)
        return cls(codes_OI.to(torch.int8), scale_O)

    def __getitem__(self, index_N: Tensor, /) -> Tensor:
        """The effective weights of some outputs, float32 [N, I]."""
        return self.codes_OI[index_N].float() * self.scale_O[index_N, None]


class W8A8Products:
    """``Products`` in 8 bits for every number of rows, of bfloat16 activations.

    Not for concurrent use: the row kernels have one job. ``LoadError`` where this processor's 8-bit
    products are not exact.
    """

    def __init__(self) -> None:
        self._rows = _RowKernels()
        _check_exact()

    def linear(self, weight_OI: Matrix, bias_O: Tensor | None) -> Linear:
        """See ``Products``."""
        product, rows = _product(EightBit.of(plain(weight_OI))), self._rows

        def linear(x_TI: Tensor) -> Tensor:
            codes_TI, scale_T = rows.quantized(x_TI)
            return rows.rescaled(product(codes_TI), scale_T, bias_O)

        return linear

    def head(self, weight_VE: Tensor) -> Head:
        """See ``Products``. Logits are float32; the refined ones are of unrounded activations."""
        weight = EightBit.of(weight_VE)
        product, rows = _product(weight), self._rows

        def logits(x_SE: Tensor) -> Tensor:
            codes_SE, scale_S = rows.quantized(x_SE)
            return product(codes_SE).mul_(scale_S[:, None])

        return Head(logits, weight)


def _product(weight: EightBit) -> Linear:
    """uint8 codes [T, I] -> float32 [T, O], without the scales of the rows."""
    outputs, inputs = weight.codes_OI.shape
    packed = torch.ops.onednn.qlinear_prepack(weight.codes_OI, [ROWS_HINT, inputs])
    zeros, scale_O = torch.zeros(outputs, dtype=torch.int32), weight.scale_O
    product = torch.ops.onednn.qlinear_pointwise.default
    kind = torch.float32

    def linear(codes_TI: Tensor) -> Tensor:
        y_TO: Tensor = product(
            codes_TI, 1.0, ZERO_POINT, packed, scale_O, zeros, None, 1.0, 0, kind, "none", [], ""
        )
        return y_TO

    return linear


def _check_exact() -> None:
    """Processors without 8-bit dot products add pairs in 16 bits, where large ones saturate."""
    size = 64
    weight = EightBit(torch.full((size, size), LEVELS, dtype=torch.int8), torch.ones(size))
    largest = torch.full((ROWS_HINT, size), 255, dtype=torch.uint8)
    expected = float(size * LEVELS * (255 - ZERO_POINT))
    if not bool((_product(weight)(largest) == expected).all()):
        raise LoadError(
            "quantization 'w8a8' needs a processor with exact 8-bit products (VNNI or AMX)"
        )


class _RowKernels:
    """The kernels of ``rows8`` over tensors."""

    def __init__(self) -> None:
        compiled.ready(rows8.run_rows)
        self._quantize = compiled.worker(rows8.quantize_rows).address
        self._rescale = compiled.worker(rows8.rescale_rows).address
        self._job = np.zeros(len(Job), np.int64)
        self._job[Job.PARALLEL] = compiled.parallel_address()
        self._address = self._job.ctypes.data

    def quantized(self, x_TI: Tensor) -> tuple[Tensor, Tensor]:
        """uint8 [T, I] with the zero point 128, and a float32 scale for each row."""
        assert x_TI.dtype == torch.bfloat16
        assert x_TI.is_contiguous()
        rows, size = x_TI.shape
        codes_TI = torch.empty(rows, size, dtype=torch.uint8)
        scale_T = torch.empty(rows)
        self._run(self._quantize, x_TI, codes_TI, scale_T, 0)
        return codes_TI, scale_T

    def rescaled(self, y_TO: Tensor, scale_T: Tensor, bias_O: Tensor | None) -> Tensor:
        """``y * scale + bias`` of float32 rows, as bfloat16."""
        out_TO = torch.empty(y_TO.shape, dtype=torch.bfloat16)
        bias = 0 if bias_O is None else bias_O.data_ptr()
        self._run(self._rescale, y_TO, out_TO, scale_T, bias)
        return out_TO

    def _run(self, worker: int, source: Tensor, target: Tensor, scale_T: Tensor, bias: int) -> None:
        rows, size = source.shape
        rows8.run_rows(
            self._address,
            worker,
            source.data_ptr(),
            target.data_ptr(),
            scale_T.data_ptr(),
            bias,
            rows,
            size,
            1 if rows * size < _ONE_THREAD else torch.get_num_threads(),
        )


_ONE_THREAD = 2**16
"""Elements below which one thread does all: about 10 microseconds."""
