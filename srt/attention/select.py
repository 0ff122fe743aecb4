"""Which attention backend and which operations a device gets."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..errors import LoadError
from ..kernels.ops import Ops, Products
from ..layers import TorchOps
from ..memory.pool import KVPool
from .backend import AttentionBackend
from .reference import ReferenceAttention


class Selection(NamedTuple):
    """How a model runs on its device; ``attention`` names the backend that was chosen."""

    attention: str
    ops: Ops
    backend: AttentionBackend


def select(
    name: str,
    device: torch.device,
    pool: KVPool,
    *,
    n_heads: int,
    products: Products | None = None,
    deterministic: bool = False,
) -> Selection:
    """Operations and backend for a device; ``name`` is ``ModelOptions.attention``.

    ``auto`` is ``cpu`` on a CPU, for heads of an even size, and ``reference`` elsewhere. With
    ``reference`` everything is plain torch. ``LoadError`` where the device or the heads do not suit
    the name, or plain torch does not suit the ``products`` that quantisation brings. With
    ``deterministic`` nothing that a row gives depends on what else is in its step.
    """
    even = pool.k(0).shape[2] % 2 == 0
    if name == "auto":
        name = "cpu" if device.type == "cpu" and even else "reference"
    if name == "reference":
        if products is not None:
            raise LoadError("quantization needs the attention backend 'cpu', not 'reference'")
        if deterministic:
            raise LoadError("deterministic needs the attention backend 'cpu', not 'reference'")
        return Selection(name, TorchOps(), ReferenceAttention(pool))
    if name != "cpu":
        raise LoadError(f"attention backend {name!r} is not known; it must be cpu or reference")
    if device.type != "cpu":
        raise LoadError(f"attention backend 'cpu' does not run on {device}")
    if not even:
        raise LoadError("attention backend 'cpu' needs heads of an even size; use 'reference'")
    # Imports numba, which a model on another device can do without.
    from ..kernels.cpu_ops import CpuOps, PackedProducts
    from ..kernels.fixed import FixedProducts
    from .cpu import CpuAttention

    if deterministic:
        products = FixedProducts(products or PackedProducts())
    backend = CpuAttention(pool, n_heads=n_heads, deterministic=deterministic)
    return Selection(name, CpuOps(products), backend)
