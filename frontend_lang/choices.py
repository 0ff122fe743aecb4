"""Ways to decide between choices by their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from .runtime import Score


class Decision(NamedTuple):
    """The place of the chosen one, and what to report about all choices, in the order given."""

    chosen: int
    meta: dict[str, Any]


class ChoicesMethod(Protocol):
    """``needs_unconditional`` asks for scores of the same tokens without the prompt."""

    @property
    def needs_unconditional(self) -> bool:
        """Whether ``decide`` reads ``unconditional``."""
        ...

    def decide(self, scores: Sequence[Score], unconditional: Sequence[Score] | None) -> Decision:
        """Ties go to the first."""
        ...


class TokenLengthNormalized:
    """The largest mean log-probability per token.

    A long choice whose tail is certain once its head is given gains by its length.
    """

    needs_unconditional = False

    def decide(self, scores: Sequence[Score], unconditional: Sequence[Score] | None) -> Decision:
        means = [_mean(score.logprobs) for score in scores]
        return Decision(_best(means), _meta(scores, means))


class GreedyTokenSelection:
    """Token by token, as greedy decoding held to the choices would go.

    At each position the choices still in the running are grouped by their token, and the group
    with the likeliest one stays. A choice that has ended competes by its own mean.
    """

    needs_unconditional = False

    def decide(self, scores: Sequence[Score], unconditional: Sequence[Score] | None) -> Decision:
        means = [_mean(score.logprobs) for score in scores]
        running = list(range(len(scores)))
        position = 0
        while len(running) > 1 and any(position < len(scores[i].ids) for i in running):
            running = _likeliest(scores, means, running, position)
            position += 1
        longest = max(len(score.logprobs) for score in scores)
        matrix = [
            [*score.logprobs, *[mean] * (longest - len(score.logprobs))]
            for score, mean in zip(scores, means, strict=True)
        ]
        return Decision(running[0], {**_meta(scores, means), "greedy_logprob_matrix": matrix})


class UnconditionalLikelihoodNormalized:
    """The largest mean gain of a token's log-probability by the prompt.

    Corrects for choices that are likely whatever was asked.
    """

    needs_unconditional = True

    def decide(self, scores: Sequence[Score], unconditional: Sequence[Score] | None) -> Decision:
        assert unconditional is not None, "this method needs unconditional scores"
        gains = [
            _mean([a - b for a, b in zip(given.logprobs, alone.logprobs, strict=True)])
            for given, alone in zip(scores, unconditional, strict=True)
        ]
        means = [_mean(score.logprobs) for score in scores]
        meta = _meta(scores, means)
        meta["unconditional_token_logprobs"] = [list(score.logprobs) for score in unconditional]
        meta["normalized_unconditional_prompt_logprobs"] = gains
        return Decision(_best(gains), meta)


token_length_normalized: ChoicesMethod = TokenLengthNormalized()
greedy_token_selection: ChoicesMethod = GreedyTokenSelection()
unconditional_likelihood_normalized: ChoicesMethod = UnconditionalLikelihoodNormalized()


def _likeliest(
    scores: Sequence[Score], means: Sequence[float], running: Sequence[int], position: int
) -> list[int]:
    """Those of ``running`` that share the likeliest token at a position, or an ended one alone."""
    groups: dict[tuple[str, int], list[int]] = {}
    values: dict[tuple[str, int], float] = {}
    for i in running:
        ended = position >= len(scores[i].ids)
        key = ("ended", i) if ended else ("token", scores[i].ids[position])
        value = means[i] if ended else scores[i].logprobs[position]
        groups.setdefault(key, []).append(i)
        values[key] = max(value, values.get(key, value))
    return groups[max(values, key=lambda key: (values[key], -groups[key][0]))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda i: (values[i], -i))


def _meta(scores: Sequence[Score], means: list[float]) -> dict[str, Any]:
    return {
        "normalized_prompt_logprobs": means,
        "input_token_logprobs": [
            list(zip(score.logprobs, score.ids, strict=True)) for score in scores
        ],
    }
