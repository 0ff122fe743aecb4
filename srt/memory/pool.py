"""The tensors that hold K and V."""

from __future__ import annotations

import torch
from torch import Tensor

from .allocator import Pages


class KVPool:
    """K and V of all layers, a slot for each token: page ``p`` has slots ``[p * size, ...)``.

    One allocation, never written before use, so that the system hands out memory only for pages
    that have been in use. What a free slot holds is garbage and must not be read.
    """

    def __init__(
        self,
        n_pages: int,
        page_size: int,
        n_layers: int,
        n_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        self.n_pages = n_pages
        self.page_size = page_size
        self.n_slots = n_pages * page_size
        shape = (n_layers, 2, self.n_slots, n_kv_heads, head_dim)
        self._kv = torch.empty(shape, dtype=dtype, device=device)

    @staticmethod
    def token_bytes(n_layers: int, n_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Bytes that one token's KV takes in all layers."""
        return 2 * n_layers * n_kv_heads * head_dim * dtype.itemsize

    def k(self, layer: int) -> Tensor:
        """Keys of a layer, [n_slots, n_kv_heads, head_dim]."""
        return self._kv[layer, 0]

    def v(self, layer: int) -> Tensor:
        """Values of a layer, [n_slots, n_kv_heads, head_dim]."""
        return self._kv[layer, 1]

    def poison(self, slots: Tensor) -> None:
        """Makes slots unfit to read (NaN): for tests that look for reads of freed pages."""
        self._kv[:, :, slots] = torch.nan

    def poison_pages(self, pages: Pages) -> None:
        """``poison`` for whole pages: a ``PageAllocator``'s ``on_free``."""
        size = self.page_size
        first = torch.from_numpy(pages.astype("int64")) * size
        self.poison((first[:, None] + torch.arange(size)).flatten())
