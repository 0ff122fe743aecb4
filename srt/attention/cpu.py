"""Attention on the CPU: plans a step into items, and runs the compiled kernel over them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch
from ..kernels import compiled, paged
from ..kernels.paged import Job
from .work import Limits, Work, plan_work


class Pool(Protocol):
    """What attention needs of the KV pool: ``[slots, KV heads, head size]`` for each layer."""

    page_size: int

    def k(self, layer: int) -> Tensor: ...

    def v(self, layer: int) -> Tensor: ...


class CpuAttention:
    """``AttentionBackend`` for float32 and bfloat16 pools in main memory.

    Heads are of any even size; sizes that are multiples of 32 are the fast ones. Not for concurrent
    use: the plan and the threads' space belong to the one step that runs.
    """

    def __init__(self, pool: Pool, *, n_heads: int, deterministic: bool = False) -> None:
        """Loads the kernels, or compiles them (seconds) where no cache has them yet.

        With ``deterministic`` a token's attention depends on its position alone: each token is an
        item of its own, cut at the same lengths, and shares nothing with other rows.
        """
        keys = pool.k(0)
        _, kv_heads, head_dim = keys.shape
        assert keys.is_contiguous()
        assert head_dim % 2 == 0
        assert n_heads % kv_heads == 0
        self._pool, self._page_size, self._dtype = pool, pool.page_size, keys.dtype
        self._shape = (n_heads, kv_heads, head_dim)
        self._limits = Limits(
            queries=1 if deterministic else paged.MAX_QUERIES,
            keys_few=256,
            keys_many=256 if deterministic else 4096,
            kv_bytes=2 * kv_heads * head_dim * keys.element_size(),
            part_bytes=4 * paged.part_floats(n_heads, head_dim),
            groups=not deterministic,
        )
        self._bfloat16 = keys.dtype == torch.bfloat16
        self._strides: set[tuple[int, ...]] = set()
        self._pools: dict[int, tuple[int, int]] = {}
        # torch's memory begins at a multiple of 64 bytes, numpy's does not.
        self._parts, self._space = torch.zeros(0), torch.zeros(0)
        self._work: Work | None = None
        self._job = np.zeros(len(Job), np.int64)
        self._job_address = self._job.ctypes.data
        compiled.ready(paged.run_job)
        attend, merge = (
            (paged.attend_bfloat16, paged.merge_bfloat16)
            if self._bfloat16
            else (paged.attend_float32, paged.merge_float32)
        )
        self._set(
            ATTEND=compiled.worker(attend).address,
            MERGE=compiled.worker(merge).address,
            PARALLEL=compiled.parallel_address(),
            HEADS=n_heads,
            KV_HEADS=kv_heads,
            HEAD_DIM=head_dim,
        )

    def plan(self, batch: Batch) -> None:
        """See ``AttentionBackend``."""
        work = plan_work(batch, self._page_size, self._limits)
        threads = torch.get_num_threads()
        heads, kv_heads, head_dim = self._shape
        # A little work is done sooner by one thread than another is woken.
        keys = int(work.items[:, 1] @ work.items[:, 3].astype(np.int64))
        if keys * heads * head_dim < _ONE_THREAD:
            threads = 1
        space = paged.space_floats(heads, kv_heads, head_dim)
        self._parts = _at_least(self._parts, work.n_parts * paged.part_floats(heads, head_dim))
        self._space = _at_least(self._space, threads * space)
        self._work = work
        self._set(
            N_ITEMS=len(work.items),
            ITEMS=work.items.ctypes.data,
            QUERIES=work.queries.ctypes.data,
            SLOTS=work.slots.ctypes.data,
            PARTS=self._parts.data_ptr(),
            SPACE=self._space.data_ptr(),
            SPACE_STRIDE=space,
            N_MERGED=len(work.merged),
            MERGED=work.merged.ctypes.data,
            MERGED_STARTS=work.merged_starts.ctypes.data,
            MERGED_PARTS=work.merged_parts.ctypes.data,
            N_TOKENS=len(work.new_slots),
            NEW_SLOTS=work.new_slots.ctypes.data,
            THREADS=threads,
        )

    def run(self, layer: int, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
        """See ``AttentionBackend``. A token's heads must lie side by side."""
        for x in (q_THD, k_TKD, v_TKD):
            if x.stride() not in self._strides:
                self._admit(x)
        o_THD = torch.empty(q_THD.shape, dtype=self._dtype)
        k_pool, v_pool = self._addresses(layer)
        paged.run_job(
            self._job_address,
            self._bfloat16,
            q_THD.data_ptr(),
            q_THD.stride(0),
            k_TKD.data_ptr(),
            k_TKD.stride(0),
            v_TKD.data_ptr(),
            v_TKD.stride(0),
            k_pool,
            v_pool,
            o_THD.data_ptr(),
        )
        return o_THD

    def _admit(self, x_THD: Tensor) -> None:
        assert x_THD.dtype == self._dtype
        assert x_THD.device.type == "cpu"
        assert x_THD.stride()[1:] == (self._shape[2], 1), x_THD.stride()
        self._strides.add(x_THD.stride())

    def _addresses(self, layer: int) -> tuple[int, int]:
        found = self._pools.get(layer)
        if found is None:
            keys, values = self._pool.k(layer), self._pool.v(layer)
            assert keys.is_contiguous()
            assert values.is_contiguous()
            found = self._pools[layer] = (keys.data_ptr(), values.data_ptr())
        return found

    def _set(self, **words: int) -> None:
        for name, value in words.items():
            self._job[Job[name]] = value


_ONE_THREAD = 64 * 9 * 256
"""Query-key products (times head size) below which one thread does all: about 5 microseconds."""


def _at_least(buffer: Tensor, size: int) -> Tensor:
    return buffer if len(buffer) >= size else torch.zeros(size)
