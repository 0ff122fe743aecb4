"""Log-probabilities of the model's own distribution: before bias, temperature and masks.

Shapes: S positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..messages import TokenLogprobs

_SPARE = 16
"""More alternatives than asked for are taken, so that ties at the end go to the lowest ids."""


class LogprobRows:
    """Rows of logits and their normalisers: what reporting needs after tokens were drawn."""

    def __init__(self, logits_SV: Tensor) -> None:
        self._logits_SV = logits_SV

    def report(self, row: int, token: int, top: int) -> TokenLogprobs:
        """The token's log-probability and the ``top`` most likely tokens."""
        return top_logprobs(self._logits_SV[row : row + 1], [token], top)[0]


def top_logprobs(logits_SV: Tensor, tokens: Sequence[int], top: int) -> list[TokenLogprobs]:
    """For each position the log-probability of ``tokens[i]``, and the best ``top``, best first."""
    # Not logsumexp: it adds up one row in another order than several.
    logprobs_SV = torch.log_softmax(logits_SV.double(), -1)
    index_S = torch.tensor(tokens, device=logits_SV.device)
    values = logprobs_SV.gather(1, index_S[:, None])[:, 0].tolist()
    if not top:
        return [TokenLogprobs(t, v) for t, v in zip(tokens, values, strict=True)]
    best = logits_SV.topk(min(top + _SPARE, logits_SV.shape[1]))
    tops = logprobs_SV.gather(1, best.indices).tolist()
    result = []
    for token, value, logs, ids in zip(tokens, values, tops, best.indices.tolist(), strict=True):
        pairs = sorted(zip(ids, logs, strict=True), key=lambda pair: (-pair[1], pair[0]))
        result.append(TokenLogprobs(token, value, pairs[:top]))
    return result
