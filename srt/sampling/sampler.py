"""Draws a token for each row of logits.

Order: logit_bias -> penalties -> temperature -> grammar mask -> top_k -> top_p -> min_p -> sample.
Shapes: S rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..kernels import drawing
from ..kernels.compiled import ready
from ..params import SamplingParams
from .reference import adjusted
from .uniform import uniform

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.int32]


COLDEST = 1e-6
"""Temperatures below this are this: in float32 they would be 0, and 0 / 0 is no number."""


class Draw(NamedTuple):
    """What one row needs: who draws, the tokens so far, and which ids may not be drawn.

    ``position`` is the output index of the token, ``banned`` ids that end the output and may not
    yet, ``mask`` the grammar's allowed tokens.
    """

    params: SamplingParams
    seed: int
    choice: int
    position: int
    tokens: npt.NDArray[np.int32]
    prompt_len: int
    banned: Sequence[int] = ()
    mask: Mask | None = None
    attempt: int = 0


class Sampler:
    """Stateless but for scratch; one call at a time.

    Ids from ``vocab_size`` on (rows that pad an embedding) are never drawn.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._hist = np.empty(drawing.BINS, np.float64)
        self._space = np.empty(vocab_size, np.float32)
        self._sums = np.empty(-(-vocab_size // drawing.BLOCK), np.float64)
        self._out = np.empty(1, np.int64)
        for made in drawing.KERNELS:
            ready(made)

    def sample(
        self, logits_SV: Tensor, draws: Sequence[Draw]
    ) -> tuple[list[int], list[str | None]]:
        """One token for each row, and what is wrong with rows that have none (their token is 0).

        Does not change the logits.
        """
        logits_SV = logits_SV[:, : self._vocab_size]
        best = logits_SV.max(dim=-1)
        ids: list[int] = best.indices.tolist()
        errors = [None if _is_finite(v) else _describe(v) for v in best.values.tolist()]
        sampled = []
        for row, draw in enumerate(draws):
            if errors[row] is None and not _is_plain(draw.params, draw):
                sampled.append(row)
        if sampled:
            self._sample(logits_SV, draws, sampled, ids, errors)
        return [0 if error else id for id, error in zip(ids, errors, strict=True)], errors

    def _sample(
        self,
        logits_SV: Tensor,
        draws: Sequence[Draw],
        rows: list[int],
        ids: list[int],
        errors: list[str | None],
    ) -> None:
        copy_SV = logits_SV[rows].float().cpu()
        random, best = [], []
        for i, (x_V, row) in enumerate(zip(copy_SV.numpy(), rows, strict=True)):
            self._adjust(x_V, draws[row])
            ids[row] = int(x_V.argmax())
            if not _is_finite(x_V[ids[row]]):
                errors[row] = "the model gives no token that may come next any probability"
            elif draws[row].params.temperature > 0:
                random.append(i)
                best.append(float(x_V[ids[row]]))
        if not random:
            return
        chosen_SV = copy_SV if len(random) == len(rows) else copy_SV[random]
        heat = [max(draws[rows[i]].params.temperature, COLDEST) for i in random]
        # Less the maximum first: a tiny temperature must not make infinities.
        chosen_SV -= torch.tensor(best)[:, None]
        chosen_SV /= torch.tensor(heat)[:, None]
        p_SV = torch.softmax(chosen_SV, -1).numpy()
        for p_V, i in zip(p_SV, random, strict=True):
            ids[rows[i]] = self._draw(p_V, draws[rows[i]])

    def _adjust(self, x_V: Floats, draw: Draw) -> None:
        """Bias, penalties, bans and the grammar's mask, in place."""
        params = draw.params
        raw_V = x_V.copy() if draw.mask is not None or draw.banned else x_V
        if _changes(params):
            x_V[:] = adjusted(x_V, params, draw.tokens, draw.prompt_len)
        if draw.mask is not None:
            drawing.apply_mask(x_V, draw.mask)
            if np.isneginf(x_V.max()):
                x_V[:] = raw_V
                drawing.apply_mask(x_V, draw.mask)
        if draw.banned:
            kept = x_V[list(draw.banned)].copy()
            x_V[list(draw.banned)] = -np.inf
            if np.isneginf(x_V.max()):  # a finished grammar is not held open
                x_V[list(draw.banned)] = kept

    def _draw(self, p_V: Floats, draw: Draw) -> int:
        params = draw.params
        number = uniform(draw.seed, draw.choice, draw.position, draw.attempt)
        drawing.draw_row(
            p_V,
            p_V.view(np.uint32),
            params.top_k,
            params.top_p,
            params.min_p,
            number,
            self._hist,
            self._space,
            self._sums,
            self._out,
        )
        return int(self._out[0])


def _is_plain(params: SamplingParams, draw: Draw) -> bool:
    """Whether the row's token is that of its largest logit."""
    greedy = params.temperature == 0
    return greedy and draw.mask is None and not draw.banned and not _changes(params)


def _changes(params: SamplingParams) -> bool:
    return (
        bool(params.logit_bias)
        or params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


def _is_finite(value: float) -> bool:
    return -np.inf < value < np.inf


def _describe(value: float) -> str:
    return f"the model's largest logit is {value}: its numbers have overflowed"
