"""Runs rows through a decoder by hand: any split into steps, any pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sapwood.srt.attention.select import select
from sapwood.srt.batch import Batch, Group, Row
from sapwood.srt.checkpoint import Checkpoint
from sapwood.srt.memory.pool import KVPool
from sapwood.srt.messages import Submit
from sapwood.srt.models import Decoder, load_weights
from sapwood.srt.params import SamplingParams
from sapwood.srt.request import Request


class Stepper:
    """A decoder over a small pool whose pages are scattered."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        attention: str,
        page_size: int = 1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        config = checkpoint.config
        shape = (config.n_layers, config.n_kv_heads, config.head_dim)
        self.page_size = page_size
        self.pool = KVPool(1024 // page_size, page_size, *shape, dtype)
        chosen = select(attention, torch.device("cpu"), self.pool, n_heads=config.n_heads)
        self._attention = chosen.backend
        weights = load_weights(checkpoint.weights(), config, dtype)
        self.model = Decoder(config, weights, chosen.ops, chosen.backend, config.max_positions)
        self._order = np.random.default_rng(3).permutation(1024 // page_size).astype(np.int32)
        self._taken = 0

    def pages(self, length: int) -> np.ndarray:
        """A fresh page table for ``length`` tokens."""
        count = -(-length // self.page_size)
        self._taken += count
        return self._order[self._taken - count : self._taken]

    @torch.inference_mode()
    def step(
        self,
        rows: Sequence[tuple[Sequence[int], int, int, np.ndarray]],
        groups: tuple[Group, ...] = (),
    ) -> list[Tensor]:
        """Computes tokens ``[start, stop)`` of each ``(ids, start, stop, pages)``: their logits."""
        made = tuple(
            Row(request(ids), start, stop, stop - 1, 0, 0, pages[: -(-stop // self.page_size)])
            for ids, start, stop, pages in rows
        )
        self._attention.plan(Batch(0, made, groups))
        ids_T = torch.tensor([t for ids, start, stop, _ in rows for t in ids[start:stop]])
        positions_T = torch.tensor([p for _, start, stop, _ in rows for p in range(start, stop)])
        hidden_TE = self.model.forward(ids_T, positions_T)
        lengths = [stop - start for _, start, stop, _ in rows]
        return list(self.model.logits(hidden_TE).split(lengths))


def request(ids: Sequence[int]) -> Request:
    """A request that is nothing but its prompt."""
    submit = Submit(rid="r", choice=0, prompt_ids=list(ids), params=SamplingParams(), seed=0)
    return Request(submit)
