"""What the processes say to each other: one union of tagged structs per channel.

front --ToWorker--> worker --ToDetokenizer--> detokenizer --ToFront--> front

Everything about a request carries ``(rid, choice, epoch)``. ``rid`` is internal and unique;
``choice`` numbers the samples of one request; ``epoch`` counts the times it was submitted, so that
whatever a dead worker had still on its way can be told from what is current. Token items carry the
output index at which they start.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sapwood.constrain.spec import Constraint, Warning

from .params import SamplingParams


class Submit(msgspec.Struct, frozen=True, tag="submit", kw_only=True, omit_defaults=True):
    """One sample to generate: all that a run needs, and nothing that time changes.

    ``params.max_tokens`` and ``seed`` are numbers by now. ``output_ids`` are tokens that an earlier
    epoch has produced; they count as output. ``namespace`` keeps tenants' and salts' prefixes
    apart. ``delivered`` counts characters already sent to the client. ``prompt_tail`` are the
    prompt's last ids, for decoding across the border. ``on_budget`` says what becomes of a
    constrained output whose budget runs out: it is closed in time, or cut where it is.
    """

    rid: str
    choice: int
    epoch: int = 0
    prompt_ids: list[int]
    output_ids: list[int] = []
    params: SamplingParams
    seed: int
    namespace: bytes = b""
    priority: int = 0
    deadline: float | None = None
    delivered: int = 0
    constraint: Constraint | None = None
    on_budget: Literal["close", "cut"] = "close"


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Ends a request's running and waiting samples (all choices); unknown rids are ignored."""

    rid: str


class Control(msgspec.Struct, frozen=True, tag="control"):
    """A question or order to the worker; answered by one ``ControlReply`` with the same id."""

    id: int
    op: Literal["flush_cache", "info"]


ToWorker = Submit | Abort | Control


class Finish(msgspec.Struct, frozen=True, array_like=True):
    """Why a sample ended. ``matched`` is the stop string or the stop token's id."""

    reason: Literal["stop", "length", "abort", "error"]
    matched: str | int | None = None
    message: str | None = None


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities at one position: the token's own, and the most likely ones, best first.

    ``logprob`` is ``None`` for a prompt's first token, which nothing precedes.
    """

    id: int
    logprob: float | None
    top: list[tuple[int, float]] = []


class TokenItem(msgspec.Struct, frozen=True, array_like=True):
    """New tokens of one sample. ``index`` is the output index of ``ids[0]``.

    ``cached`` is the number of prompt tokens that this request did not have to compute; it is
    final with the first item. ``prompt_logprobs`` and ``warnings`` come once, with the first item.
    """

    rid: str
    choice: int
    epoch: int
    index: int
    ids: list[int]
    cached: int
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    finish: Finish | None = None
    warnings: list[Warning] | None = None


class StepStats(msgspec.Struct, frozen=True, array_like=True):
    """The worker's state after a step; counters only grow. Pages are those of the KV pool.

    ``constrained_draws`` are rows that drew under a constraint, ``forced_tokens`` what it added
    without a draw, ``vetoed_tokens`` draws that it took back, ``closed_tokens`` tokens that it
    chose so that the output ends within its budget. ``drafted_tokens`` are tokens computed on the
    guess that they come next, ``accepted_tokens`` those of them that did, without a step of their
    own.
    """

    steps: int = 0
    running: int = 0
    waiting: int = 0
    pages_total: int = 0
    pages_used: int = 0
    pages_evictable: int = 0
    pages_free: int = 0
    computed_prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    output_tokens: int = 0
    pushed_back: int = 0
    evicted_pages: int = 0
    constrained_draws: int = 0
    forced_tokens: int = 0
    vetoed_tokens: int = 0
    closed_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    step_seconds: float = 0.0
    queue_seconds: list[float] = []
    """Waiting times of the requests that started in this step."""


class Opened(msgspec.Struct, frozen=True, tag="opened", kw_only=True, omit_defaults=True):
    """A sample starts; precedes its first tokens. Holds what the detokenizer needs of it."""

    rid: str
    choice: int
    epoch: int
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True
    shown_ids: tuple[int, ...] = ()
    output_ids: list[int] = []
    delivered: int = 0


class Tokens(msgspec.Struct, frozen=True, tag="tokens"):
    """One message a step, with items for all rows that have news."""

    items: list[TokenItem]
    stats: StepStats


class Refused(msgspec.Struct, frozen=True, tag="refused", kw_only=True, omit_defaults=True):
    """A sample that will not run, or cannot go on: the fields of ``RequestError``."""

    rid: str
    choice: int
    epoch: int
    message: str
    status: int = 400
    param: str | None = None
    code: str | None = None


class ControlReply(msgspec.Struct, frozen=True, tag="reply"):
    """The answer to a ``Control``."""

    id: int
    ok: bool
    detail: dict[str, Any] = {}


ToDetokenizer = Opened | Tokens | Refused | ControlReply


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """A ``TokenItem`` with its text. ``text`` is what may be shown now: whole characters that can
    no longer become part of a stop string."""

    rid: str
    choice: int
    epoch: int
    index: int
    ids: list[int]
    text: str
    cached: int
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    finish: Finish | None = None
    warnings: list[Warning] | None = None


class Deltas(msgspec.Struct, frozen=True, tag="deltas"):
    """One message a step, with items for all rows that have news."""

    items: list[Delta]
    stats: StepStats


ToFront = Deltas | Refused | ControlReply
