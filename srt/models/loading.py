"""From a checkpoint's tensors to torch's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..kernels.int4 import Matrix
from ..model_config import ModelConfig, expected_tensors


class Stored(Protocol):
    """A tensor that is still in its file; see ``checkpoint.Weight``."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def stored(self) -> np.ndarray: ...
    def read(self) -> np.ndarray: ...


def load_weights(
    weights: Mapping[str, Stored],
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    matrix: Callable[[Stored], Matrix | None] | None = None,
) -> Iterator[tuple[str, Matrix]]:
    """Yields every tensor of the model by its canonical name, converted, one at a time.

    ``weights`` has exactly the tensors of ``expected_tensors(config)``: opening a checkpoint checks
    names and shapes before anything is read. The files are mapped, so that no more than one tensor
    is in memory beside those that the caller keeps. Shows a progress bar on a terminal.
    ``matrix`` reads the weights of products (the embedding is none) where it does not return None.
    """
    names = list(expected_tensors(config))
    with tqdm(total=len(names), desc="weights", unit="tensor", disable=not _on_terminal()) as bar:
        for name in names:
            weight = weights[name]
            read = matrix(weight) if matrix and name.endswith(_PRODUCTS) else None
            tensor = _tensor(weight, dtype).to(device) if read is None else read
            bar.update()  # before the yield: nobody comes back after the last one
            yield name, tensor


_PRODUCTS = ("_proj.weight", "lm_head.weight")


def _on_terminal() -> bool:
    return sys.stderr.isatty()


def _tensor(weight: Stored, dtype: torch.dtype) -> Tensor:
    if weight.dtype == "BF16" and dtype == torch.bfloat16:
        bits = np.array(weight.stored(), copy=True).reshape(weight.shape)
        return torch.from_numpy(bits).view(torch.bfloat16)
    return torch.from_numpy(weight.read()).to(dtype)
