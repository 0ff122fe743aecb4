"""One step: what the scheduler asks of the runner, and what the runner answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .messages import TokenLogprobs
from .request import Request


class Row(NamedTuple):
    """A request's part in a step: compute KV for tokens ``[start, stop)``.

    Positions ``[sample_from, stop)`` get logits and a sampled token each: ``stop - 1`` for a
    request that has caught up, more of them to verify a draft, none (``sample_from == stop``) in
    the middle of a prompt. What is drafted is behind the request's own tokens: see
    ``Request.upto``. Logits at positions ``[score_from, score_to)`` are reduced to the
    log-probability of the prompt token that follows each, and its alternatives.
    ``pages`` is the page table of positions ``[0, stop)``: position ``i`` lives in slot
    ``pages[i // page_size] * page_size + i % page_size``.
    """

    request: Request
    start: int
    stop: int
    sample_from: int
    score_from: int
    score_to: int
    pages: npt.NDArray[np.int32]

    @property
    def drafted(self) -> int:
        """Tokens computed beyond the request's own, to be verified."""
        return max(self.stop - 1 - self.sample_from, 0)

    def verified(self, ids: list[int]) -> list[int]:
        """Of the tokens drawn for the sampled positions, in order, those that count: up to the
        first that is not what was drafted. What was drawn after it had a wrong context."""
        draft = self.request.upto(self.stop)[self.sample_from + 1 :].tolist()
        for place, (token, drafted) in enumerate(zip(ids, draft, strict=False)):
            if token != drafted:
                return ids[: place + 1]
        return ids


class Group(NamedTuple):
    """Rows of a step whose positions ``[start, stop)`` are the same pages.

    ``rows`` are indices into ``Batch.rows``, at least two, ascending. Every row's own ``start`` is
    at or after ``stop``, so attention over a group needs no causal mask. The ranges of the groups
    that a row is in do not overlap.
    """

    rows: tuple[int, ...]
    start: int
    stop: int


class Batch(NamedTuple):
    """The frozen description of one step: one variable-length forward pass over all rows."""

    step: int
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]

    @property
    def n_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(row.stop - row.start for row in self.rows)


class Sampled(NamedTuple):
    """The runner's answer, in the order of ``Batch.rows``.

    ``ids[i]`` has one token for each of row i's sampled positions, as far as they are verified, and
    ``logprobs[i]`` one entry for each where the request asked for them. ``prompt_logprobs[i]`` has
    an entry for each scored position: the log-probability of the *following* prompt token.
    ``errors[i]`` says why a row has no usable logits (it fails alone); its other fields are then
    empty.
    """

    ids: list[list[int]]
    logprobs: list[list[TokenLogprobs] | None]
    prompt_logprobs: list[list[TokenLogprobs] | None]
    errors: list[str | None]
