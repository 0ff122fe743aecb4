"""What the engine's methods return."""

from __future__ import annotations

from dataclasses import dataclass, field

from sapwood.constrain.spec import Warning

from ..front.cursor import News
from ..front.entry import Call, Choice
from ..messages import Finish, TokenLogprobs


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One finished sample.

    ``cached_tokens`` are prompt tokens whose KV was there already. ``logprobs`` go with ``ids``
    where they were asked for; ``prompt_logprobs`` with the prompt's tokens from the position asked
    for. ``seed`` repeats the sample. ``warnings`` are keywords of a lenient constraint that were
    done without.
    """

    text: str
    ids: list[int]
    finish: Finish
    prompt_tokens: int
    cached_tokens: int
    seed: int
    index: int = 0
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    warnings: list[Warning] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new in a stream: text, tokens, and with the last piece why it ended.

    ``cached_tokens`` and ``seed`` are those of the whole sample. ``logprobs`` are new as well;
    ``prompt_logprobs`` and ``warnings`` come with the last piece.
    """

    text: str
    ids: list[int]
    index: int
    finish: Finish | None = None
    cached_tokens: int = 0
    seed: int = 0
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] | None = None
    warnings: list[Warning] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Score:
    """How likely the model finds a continuation: one log-probability for each of its tokens.

    ``start`` is the position of the first scored token in ``prompt + continuation``: it lies
    before the prompt's end where the prompt's last token and the continuation's first merge.
    ``prompt_tokens`` are those of both, of which ``cached_tokens`` were not computed.
    """

    ids: list[int]
    logprobs: list[float]
    start: int
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total(self) -> float:
        """The continuation's log-probability."""
        return sum(self.logprobs)


def completions(call: Call) -> list[Completion]:
    """All samples of a finished call, prompts in order, samples of a prompt together."""
    return [
        completion(call, choice, len(entry.prompt.ids))
        for entry in call.entries
        for choice in entry.choices
    ]


def completion(call: Call, choice: Choice, prompt_tokens: int) -> Completion:
    """One sample of a finished call."""
    assert choice.finish is not None, "a call that has ended has ended choices"
    return Completion(
        text=choice.text,
        ids=list(choice.ids),
        finish=choice.finish,
        prompt_tokens=prompt_tokens,
        cached_tokens=choice.cached,
        seed=call.seed,
        index=choice.index,
        logprobs=list(choice.logprobs) or None,
        prompt_logprobs=choice.prompt_logprobs,
        warnings=choice.warnings,
    )


def piece(call: Call, choice: Choice, news: News) -> Piece:
    """What a cursor has found."""
    last = news.finish is not None
    return Piece(
        news.text,
        news.ids,
        choice.index,
        news.finish,
        choice.cached,
        call.seed,
        news.logprobs,
        choice.prompt_logprobs if last else None,
        choice.warnings if last else [],
    )
