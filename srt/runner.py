"""Runs steps on a device: one forward pass over all rows, then a token for each that caught up.

Shapes: T tokens of the step, S sampled positions, P scored positions, E hidden size, V vocabulary.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sapwood.constrain.matcher import MaskRow

from .attention import AttentionBackend
from .attention.select import select
from .batch import Batch, Row, Sampled
from .config import CacheConfig, ModelOptions, SchedulerConfig
from .errors import LoadError
from .memory.pool import KVPool
from .messages import Submit, TokenLogprobs
from .models import Decoder, load_weights, model_dtype
from .params import SamplingParams
from .quant import quantization
from .request import Request
from .sampling import Draw, Sampler, top_logprobs

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

SCORED_BLOCK = 64
"""Positions whose logits are in memory at once while a prompt is scored."""


class Logits(NamedTuple):
    """What a forward pass leaves for sampling: float32 [S, V] in the order of rows, and for each
    row that asked for it what its prompt's tokens scored."""

    logits_SV: Tensor
    prompt_logprobs: list[list[TokenLogprobs] | None]


class ModelRunner:
    """A model on one device, with its KV pool. Not for concurrent use."""

    def __init__(
        self, model: Decoder, pool: KVPool, attention: AttentionBackend, vocab_size: int
    ) -> None:
        self.pool = pool
        self._model = model
        self._attention = attention
        self._sampler = Sampler(vocab_size)
        self._device = pool.k(0).device
        self._details: dict[str, Any] = {}

    @classmethod
    def load(
        cls,
        options: ModelOptions,
        cache: CacheConfig,
        scheduler: SchedulerConfig,
        checkpoint: Checkpoint,
    ) -> ModelRunner:
        """Loads a checkpoint's weights and makes the pool; ``LoadError`` for what cannot be."""
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        device = pick_device(options.device)
        dtype = model_dtype(options.dtype, device)
        config = checkpoint.config
        context = config.context(options.context_length)
        shape = (config.n_layers, config.n_kv_heads, config.head_dim)
        n_pages = pool_pages(cache, KVPool.token_bytes(*shape, dtype))
        pool = make_pool(n_pages, cache.page_size, shape, dtype, device)
        stored = checkpoint.weights()
        quant = quantization(options.quantization, device, dtype, stored)
        chosen = select(
            options.attention,
            device,
            pool,
            n_heads=config.n_heads,
            products=quant.products,
            deterministic=options.deterministic,
        )
        weights = load_weights(stored, config, dtype, device, quant.matrix)
        with torch.inference_mode():
            model = Decoder(config, weights, chosen.ops, chosen.backend, context)
            quant.settle()
        vocab_size = min(config.vocab_size, checkpoint.tokenizer.vocab_size)
        runner = cls(model, pool, chosen.backend, vocab_size)
        runner._details = {
            "device": str(device),
            "dtype": str(dtype).removeprefix("torch."),
            **quant.describe(),
            "attention": chosen.attention,
            "deterministic": options.deterministic,
            "kv_tokens": pool.n_slots,
            "page_size": pool.page_size,
            "threads": torch.get_num_threads(),
        }
        return runner

    def describe(self) -> dict[str, Any]:
        """What was chosen, for logs and ``/server_info``."""
        return dict(self._details)

    def warm_up(self) -> None:
        """Computes one token for real. Call it before anything is in the pool.

        ``LoadError`` where the model's numbers are not finite: it cannot be served in this dtype.
        """
        submit = Submit(
            rid="", choice=0, prompt_ids=[0], params=SamplingParams(temperature=0.0), seed=0
        )
        row = Row(Request(submit), 0, 1, 0, 0, 0, np.zeros(1, np.int32))
        batch = Batch(0, (row,), ())
        error = self.sample(batch, self.forward(batch)).errors[0]
        if error is not None:
            raise LoadError(f"the model cannot be served: {error}")

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Logits:
        """One variable-length forward pass; fills the KV of every row's tokens."""
        rows = batch.rows
        ids = np.concatenate([r.request.upto(r.stop)[r.start :] for r in rows])
        positions = np.concatenate([np.arange(r.start, r.stop) for r in rows])
        self._attention.plan(batch)
        hidden_TE = self._model.forward(self._put(ids.astype(np.int64)), self._put(positions))
        first = np.cumsum([0, *(row.stop - row.start for row in rows)])
        scored = [
            self._score(row, hidden_TE[at - row.start + row.score_from :])
            for row, at in zip(rows, first.tolist(), strict=False)
        ]
        wanted = [
            np.arange(at - row.start + row.sample_from, at - row.start + row.stop)
            for row, at in zip(rows, first.tolist(), strict=False)
        ]
        index_S = np.concatenate(wanted)
        if not len(index_S):
            return Logits(hidden_TE.new_empty(0, 0), scored)
        whole = len(index_S) == len(ids)
        hidden_SE = hidden_TE if whole else hidden_TE[self._put(index_S)]
        return Logits(self._model.logits(hidden_SE), scored)

    @torch.inference_mode()
    def sample(
        self, batch: Batch, logits: Logits, masks: Sequence[MaskRow | None] | None = None
    ) -> Sampled:
        """Draws a token for each sampled position; a row without usable logits fails alone.

        Where only the logits after a draft are unusable, the row's tokens end before them.
        """
        draws, owners = [], []
        for index, row in enumerate(batch.rows):
            for position in range(row.sample_from, row.stop):
                mask = None if masks is None else masks[index]
                draws.append(_draw(row, position, mask))
                owners.append(index)
        ids: list[list[int]] = [[] for _ in batch.rows]
        errors: list[str | None] = [None] * len(batch.rows)
        if draws:
            drawn, wrong = self._sampler.sample(logits.logits_SV, draws)
            for token, error, owner in zip(drawn, wrong, owners, strict=True):
                errors[owner] = errors[owner] or error
                if errors[owner] is None:
                    ids[owner].append(token)
        for index, row in enumerate(batch.rows):
            if row.drafted and ids[index]:
                ids[index], errors[index] = row.verified(ids[index]), None
        logprobs = self._output_logprobs(batch, logits.logits_SV, ids)
        return Sampled(ids, logprobs, logits.prompt_logprobs, errors)

    @torch.inference_mode()
    def redraw(
        self, batch: Batch, logits: Logits, index: int, mask: MaskRow, attempt: int
    ) -> int | None:
        """Another token for row ``index``, under another mask; ``None`` where there is none."""
        row, place = batch.rows[index], _place(batch, index)
        draw = _draw(row, row.stop - 1, mask)._replace(attempt=attempt)
        drawn, wrong = self._sampler.sample(logits.logits_SV[place : place + 1], [draw])
        return None if wrong[0] is not None else drawn[0]

    @torch.inference_mode()
    def report(self, batch: Batch, logits: Logits, index: int, token: int) -> list[TokenLogprobs]:
        """What row ``index`` asked for of ``token``'s log-probability."""
        place, top = _place(batch, index), batch.rows[index].request.params.logprobs
        return top_logprobs(logits.logits_SV[place : place + 1], [token], top or 0)

    def _put(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _score(self, row: Row, hidden_PE: Tensor) -> list[TokenLogprobs] | None:
        """Log-probabilities of the tokens after positions ``[score_from, score_to)``."""
        count = row.score_to - row.score_from
        if count <= 0:
            return None
        following = row.request.tokens[row.score_from + 1 : row.score_to + 1].tolist()
        top = row.request.params.prompt_logprobs_top
        found: list[TokenLogprobs] = []
        for at in range(0, count, SCORED_BLOCK):
            block = slice(at, min(at + SCORED_BLOCK, count))
            found += top_logprobs(self._model.logits(hidden_PE[block]), following[block], top)
        return found

    def _output_logprobs(
        self, batch: Batch, logits_SV: Tensor, ids: list[list[int]]
    ) -> list[list[TokenLogprobs] | None]:
        """For rows that asked: the drawn tokens' log-probabilities, rows of one kind together."""
        result: list[list[TokenLogprobs] | None] = [None] * len(ids)
        asking: dict[int, list[tuple[int, int, int]]] = {}
        place = 0
        for index, row in enumerate(batch.rows):
            top = row.request.params.logprobs
            if top is not None and ids[index]:
                result[index] = []
                for offset, token in enumerate(ids[index]):
                    asking.setdefault(top, []).append((index, place + offset, token))
            place += row.stop - row.sample_from
        for top, found in asking.items():
            places = torch.tensor([place for _, place, _ in found], device=logits_SV.device)
            reports = top_logprobs(logits_SV[places], [token for _, _, token in found], top)
            for (index, _, _), report in zip(found, reports, strict=True):
                entries = result[index]
                assert entries is not None
                entries.append(report)
        return result


def _place(batch: Batch, index: int) -> int:
    """The row of the logits for row ``index`` of a batch, which samples one position."""
    return sum(row.stop - row.sample_from for row in batch.rows[:index])


def _draw(row: Row, position: int, mask: MaskRow | None) -> Draw:
    """Who draws the token that follows ``position``."""
    request = row.request
    return Draw(
        params=request.params,
        seed=request.seed,
        choice=request.choice,
        position=position + 1 - request.prompt_len,
        tokens=request.upto(position + 1),
        prompt_len=request.prompt_len,
        banned=tuple(request.banned_after(position)),
        mask=mask,
    )


def pick_device(asked: str) -> torch.device:
    """The device that a name stands for; ``LoadError`` where there is no such device."""
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if asked == "cuda" and not torch.cuda.is_available():
        raise LoadError("the device cuda was asked for, and torch finds no NVIDIA GPU")
    return torch.device(asked)


def make_pool(
    n_pages: int,
    page_size: int,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> KVPool:
    """The pool for ``shape`` (layers, KV heads, head size); ``LoadError`` where memory is short.

    On a CPU memory is handed out when it is first written, so it is compared with what there is:
    a pool beyond that would be found out under load.
    """
    size = n_pages * page_size * KVPool.token_bytes(*shape, dtype)
    wanted = f"a KV pool of {n_pages * page_size} tokens takes {size / 2**30:.1f} GiB"
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.type == "cpu" and size > there:
        raise LoadError(f"{wanted}, and this machine has {there / 2**30:.1f} GiB of memory")
    try:
        return KVPool(n_pages, page_size, *shape, dtype, device)
    except RuntimeError as error:
        raise LoadError(f"{wanted}, which cannot be had: {error}") from error


def pool_pages(cache: CacheConfig, token_bytes: int) -> int:
    """Pages of the pool: as many as were asked for, or as the memory for them holds."""
    tokens = cache.kv_tokens
    if tokens is None:
        tokens = int(cache.kv_memory * 2**30 / token_bytes)
    pages = tokens // cache.page_size
    if pages < 1:
        raise LoadError(f"a KV pool of {tokens} tokens has no page of {cache.page_size}")
    return pages
