"""A runner without a model: it checks that each row reads what was written for its own tokens.

Its pool holds one number a slot: the hash of namespace and tokens up to that position. A wrong page
table, a page that was freed too early or handed out twice shows as a wrong number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sapwood.srt.batch import Batch, Row, Sampled
from sapwood.srt.messages import TokenLogprobs
from sapwood.srt.request import Request

_MODULUS = 2**61 - 1
_FACTOR = 1_000_003


class ScriptedPool:
    """Slots, as a KV pool has them."""

    def __init__(self, n_pages: int, page_size: int) -> None:
        self.n_pages = n_pages
        self.page_size = page_size
        self.slots: npt.NDArray[np.int64] = np.full(n_pages * page_size, -1, np.int64)


class ScriptedRunner:
    """Draws tokens by a hash of all tokens so far, or from a script.

    ``script[rid]`` are the output tokens of a request, the last one repeated for ever.
    ``fails[rid]`` is the output position at which that request's logits are NaN. With ``memory``
    only that many last tokens are hashed, and every seventh time all: so output repeats itself,
    but not for ever.
    """

    def __init__(
        self,
        n_pages: int,
        page_size: int = 1,
        *,
        vocab_size: int = 64,
        script: Mapping[str, Sequence[int]] | None = None,
        fails: Mapping[str, int] | None = None,
        memory: int | None = None,
    ) -> None:
        self.pool = ScriptedPool(n_pages, page_size)
        self.vocab_size = vocab_size
        self.script = dict(script or {})
        self.fails = dict(fails or {})
        self.memory = memory
        self.steps: list[Batch] = []
        self._hashes: dict[int, tuple[Request, list[int]]] = {}

    def forward(self, batch: Batch) -> None:
        """Reads, writes and reads again, as a model would."""
        self.steps.append(batch)
        slots = [row.request.slot for row in batch.rows]
        assert len(set(slots)) == len(slots), "two rows have one slot"
        places = [self._places(row) for row in batch.rows]
        hashes = [self._row_hashes(row) for row in batch.rows]
        for row, at, wanted in zip(batch.rows, places, hashes, strict=True):
            found = self.pool.slots[at[: row.start]]
            assert np.array_equal(found, wanted[: row.start]), f"{row.request.key} reads wrong KV"
        for row, at, wanted in zip(batch.rows, places, hashes, strict=True):
            self.pool.slots[at[row.start :]] = wanted[row.start :]
        for row, at, wanted in zip(batch.rows, places, hashes, strict=True):
            found = self.pool.slots[at]
            assert np.array_equal(found, wanted), f"{row.request.key} was written over"
        self._check_groups(batch)
        self._hashes = {id(row.request): self._hashes[id(row.request)] for row in batch.rows}

    def sample(
        self, batch: Batch, logits: None, masks: list[npt.NDArray[np.int32] | None] | None = None
    ) -> Sampled:
        """The next token of each row that has caught up, and what is to be scored."""
        sampled = Sampled([], [], [], [])
        for index, row in enumerate(batch.rows):
            request = row.request
            mask = None if masks is None else masks[index]
            places = range(row.sample_from, row.stop)
            ids = [self._draw(request, at, mask) for at in places]
            bad = self.fails.get(request.rid)
            if bad is not None:
                ids = ids[: max(bad - (row.sample_from + 1 - request.prompt_len), 0)]
            failed = bool(places) and not ids
            ids = row.verified(ids)
            sampled.ids.append(ids)
            sampled.logprobs.append(
                None
                if failed or request.params.logprobs is None
                else [TokenLogprobs(token, -1.0) for token in ids]
            )
            scores = [self.score(request, at) for at in range(row.score_from, row.score_to)]
            sampled.prompt_logprobs.append(scores or None)
            sampled.errors.append("NaN" if failed else None)
        return sampled

    def redraw(
        self, batch: Batch, logits: None, index: int, mask: npt.NDArray[np.int32], attempt: int
    ) -> int | None:
        """Another token of a row."""
        row = batch.rows[index]
        if not mask.any():
            return None
        return self._draw(row.request, row.stop - 1, mask, attempt)

    def report(self, batch: Batch, logits: None, index: int, token: int) -> list[TokenLogprobs]:
        """The log-probability of a token that was not drawn."""
        return [TokenLogprobs(token, -2.0)]

    def score(self, request: Request, at: int) -> TokenLogprobs:
        """The made-up log-probability of the prompt token after position ``at``."""
        value = self._request_hashes(request, at + 1)[at]
        return TokenLogprobs(int(request.tokens[at + 1]), -(value % 1000) / 100)

    def _draw(
        self,
        request: Request,
        at: int,
        mask: npt.NDArray[np.int32] | None = None,
        attempt: int = 0,
    ) -> int:
        script = self.script.get(request.rid)
        if script is not None:
            return script[min(at + 1 - request.prompt_len, len(script) - 1)]
        value = self._request_hashes(request, at + 1)[at] + request.seed * 7919
        if self.memory is not None and at % 7:
            value = hash(tuple(request.upto(at + 1)[-self.memory :].tolist())) + request.seed
        if mask is not None:
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
            allowed = np.flatnonzero(bits)
            return int(allowed[(value + attempt) % len(allowed)])
        token = value % self.vocab_size
        while token in request.banned_after(at):
            token = (token + 1) % self.vocab_size
        return token

    def _places(self, row: Row) -> npt.NDArray[np.int64]:
        size = self.pool.page_size
        at = np.arange(row.stop)
        assert len(row.pages) == -(-row.stop // size)
        places: npt.NDArray[np.int64] = row.pages[at // size].astype(np.int64) * size + at % size
        return places

    def _row_hashes(self, row: Row) -> npt.NDArray[np.int64]:
        return np.array(self._request_hashes(row.request, row.stop)[: row.stop], np.int64)

    def _request_hashes(self, request: Request, stop: int) -> list[int]:
        _, hashes = self._hashes.setdefault(id(request), (request, []))
        del hashes[request.length - 1 :]  # beyond them are drafts, others each time
        start = hashes[-1] if hashes else int.from_bytes(request.namespace, "big") % _MODULUS
        for token in request.upto(stop)[len(hashes) :].tolist():
            start = (start * _FACTOR + token + 1) % _MODULUS
            hashes.append(start)
        return hashes

    def _check_groups(self, batch: Batch) -> None:
        size = self.pool.page_size
        for group in batch.groups:
            assert len(group.rows) > 1
            assert list(group.rows) == sorted(set(group.rows))
            rows = [batch.rows[index] for index in group.rows]
            pages = [row.pages[group.start // size : group.stop // size] for row in rows]
            assert all(np.array_equal(each, pages[0]) for each in pages)
            assert all(row.start >= group.stop for row in rows)
