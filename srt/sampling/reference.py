"""Sampling written for reading: what the fast path must agree with.

Order: logit_bias -> penalties -> temperature -> grammar mask -> top_k -> top_p -> min_p -> sample.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..params import SamplingParams

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


def adjusted(
    logits_V: Floats, params: SamplingParams, tokens: npt.NDArray[np.int32], prompt_len: int
) -> Floats:
    """Logits after bias and penalties.

    The repetition penalty (Keskar et al. 2019) divides positive logits of tokens that occur in
    prompt or output and multiplies negative ones; presence and frequency (OpenAI) are taken off
    tokens of the output, once and for each time.
    """
    x = logits_V.astype(np.float32, copy=True)
    for token, bias in params.logit_bias.items():
        x[token] += bias
    seen = np.unique(tokens)
    penalty = np.float32(params.repetition_penalty)
    x[seen] = np.where(x[seen] > 0, x[seen] / penalty, x[seen] * penalty)
    written, times = np.unique(tokens[prompt_len:], return_counts=True)
    taken = params.presence_penalty + params.frequency_penalty * times
    x[written] -= taken.astype(np.float32)
    return x


def legal(x_V: Floats, raw_V: Floats, allowed_V: Bools) -> Floats:
    """Sets what is not allowed to minus infinity. The grammar wins: where everything that is
    allowed is at minus infinity by then, the raw logits count."""
    source = x_V if np.any(x_V[allowed_V] > -np.inf) else raw_V
    return np.where(allowed_V, source, np.float32(-np.inf))


def survivors(p_V: Floats, top_k: int, top_p: float, min_p: float) -> Bools:
    """Which tokens top_k, then top_p, then min_p leave; among equals the lowest ids stay.

    ``top_p`` keeps the fewest of the most likely tokens that have together at least that share of
    what top_k left.
    """
    order = np.lexsort((np.arange(len(p_V)), -p_V.astype(np.float64)))
    count = min(top_k, len(p_V)) if top_k else len(p_V)
    order = order[:count]
    if top_p < 1.0:
        sums = np.cumsum(p_V[order].astype(np.float64))
        order = order[: int(np.searchsorted(sums, top_p * sums[-1], side="left")) + 1]
    keep = np.zeros(len(p_V), bool)
    keep[order] = p_V[order] >= np.float32(min_p) * p_V[order[0]]
    return keep & (p_V > 0)


def draw(p_V: Floats, keep_V: Bools, number: float) -> int:
    """The surviving token, in the order of ids, at which the cumulative share passes ``number``."""
    ids = np.flatnonzero(keep_V)
    sums = np.cumsum(p_V[ids].astype(np.float64))
    place = int(np.searchsorted(sums, number * sums[-1], side="right"))
    return int(ids[min(place, len(ids) - 1)])
