"""Attention in plain torch: the oracle of all backends, and what runs where there are no kernels.

Shapes as in ``backend.py``; R is one row's tokens, C its context.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch
from ..memory.pool import KVPool


class _Part(NamedTuple):
    """One row: its tokens ``[first, last)`` of the step, and the slots of its context."""

    first: int
    last: int
    slots_C: Tensor
    hidden_RC: Tensor


class ReferenceAttention:
    """Loops over rows and ignores groups: a correct result does not depend on them."""

    def __init__(self, pool: KVPool) -> None:
        self._pool = pool
        self._parts: list[_Part] = []
        self._new_slots_T = torch.empty(0, dtype=torch.int64)

    def plan(self, batch: Batch) -> None:
        """See ``AttentionBackend``."""
        self._parts, first = [], 0
        for row in batch.rows:
            slots_C = self._slots(row.pages, row.stop)
            last = first + row.stop - row.start
            positions_R = torch.arange(row.start, row.stop, device=slots_C.device)
            hidden_RC = torch.arange(row.stop, device=slots_C.device) > positions_R[:, None]
            self._parts.append(_Part(first, last, slots_C, hidden_RC))
            first = last
        new = [part.slots_C[-(part.last - part.first) :] for part in self._parts]
        self._new_slots_T = torch.cat(new)

    def run(self, layer: int, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        """See ``AttentionBackend``."""
        k_pool, v_pool = self._pool.k(layer), self._pool.v(layer)
        k_pool[self._new_slots_T] = k_TKD
        v_pool[self._new_slots_T] = v_TKD
        o_THD = torch.empty(q_THD.shape, dtype=q_THD.dtype, device=q_THD.device)
        for part in self._parts:
            o_THD[part.first : part.last] = _attend(
                q_THD[part.first : part.last],
                k_pool[part.slots_C],
                v_pool[part.slots_C],
                part.hidden_RC,
            )
        return o_THD

    def _slots(self, pages: np.ndarray, stop: int) -> Tensor:
        size = self._pool.page_size
        positions = np.arange(stop)
        slots = pages[positions // size].astype(np.int64) * size + positions % size
        return torch.from_numpy(slots).to(self._pool.k(0).device)


def _attend(q_RHD: Tensor, k_CKD: Tensor, v_CKD: Tensor, hidden_RC: Tensor) -> Tensor:
    """softmax(q k / sqrt(D)) v in float32; query head h reads key/value head h // (H / K)."""
    share = q_RHD.shape[1] // k_CKD.shape[1]
    k_CHD = k_CKD.float().repeat_interleave(share, dim=1)
    v_CHD = v_CKD.float().repeat_interleave(share, dim=1)
    scores_HRC = torch.einsum("rhd,chd->hrc", q_RHD.float(), k_CHD) * q_RHD.shape[-1] ** -0.5
    scores_HRC.masked_fill_(hidden_RC, -torch.inf)
    o_RHD = torch.einsum("hrc,chd->rhd", scores_HRC.softmax(-1), v_CHD)
    return o_RHD.to(q_RHD.dtype)
