"""Backends by device and name."""

from __future__ import annotations

import pytest
import torch

from sapwood.srt.attention.cpu import CpuAttention
from sapwood.srt.attention.reference import ReferenceAttention
from sapwood.srt.attention.select import select
from sapwood.srt.errors import LoadError
from sapwood.srt.kernels.cpu_ops import CpuOps
from sapwood.srt.layers import TorchOps
from sapwood.srt.memory.pool import KVPool

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def pool(head_dim: int = 4) -> KVPool:
    return KVPool(2, 1, 1, 1, head_dim, torch.float32)


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_the_cpu_gets_its_own(name: str) -> None:
    chosen = select(name, CPU, pool(), n_heads=2)
    assert chosen.attention == "cpu"
    assert isinstance(chosen.backend, CpuAttention)
    assert isinstance(chosen.ops, CpuOps)


def test_plain_torch_elsewhere_for_odd_heads_or_when_asked_for() -> None:
    for name, device, head_dim in (("auto", CUDA, 4), ("auto", CPU, 3), ("reference", CPU, 4)):
        chosen = select(name, device, pool(head_dim), n_heads=2)
        assert chosen.attention == "reference"
        assert isinstance(chosen.backend, ReferenceAttention)
        assert isinstance(chosen.ops, TorchOps)


def test_what_does_not_suit_is_refused() -> None:
    for name, device, head_dim in (("cpu", CUDA, 4), ("cpu", CPU, 3), ("cuda", CPU, 4)):
        with pytest.raises(LoadError):
            select(name, device, pool(head_dim), n_heads=2)
