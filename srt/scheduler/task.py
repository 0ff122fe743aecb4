"""A request with what only the scheduler knows of it."""

from __future__ import annotations

from sapwood.constrain.spec import Warning

from ..messages import Opened, Submit, TokenLogprobs
from ..request import Request
from ..stops import StopMatcher
from .guesser import Guesser


class Task:
    """One sample on its way through the scheduler.

    ``end`` is the number of tokens, prompt and output, at which it ends for its length.
    ``known`` is the number of tokens that it had when it was last admitted, ``found`` of how many
    it found the KV: between them the row fills in, above them it generates. ``number`` orders by
    arrival, ``arrived`` is the step of it. ``looked_up`` is the step at which ``cached_seen``, the
    length of its cached prefix, was read.
    ``pending`` are output tokens that nobody has been told of: those that a constraint began with.
    ``warnings`` are the constraint's. ``guesser`` is there once something was to be drafted.
    While ``leader`` is set it waits for that running task to have computed ``share`` tokens.
    """

    __slots__ = (
        "arrived",
        "cached_seen",
        "end",
        "found",
        "guesser",
        "in_flight",
        "known",
        "leader",
        "leaving",
        "looked_up",
        "number",
        "opened",
        "opening",
        "pending",
        "pushed_back",
        "reported",
        "request",
        "score_next",
        "scored",
        "share",
        "stops",
        "warnings",
    )

    def __init__(self, submit: Submit, end: int, number: int, arrived: int) -> None:
        params = submit.params
        self.request = Request(submit)
        self.request.end = end
        self.end = end
        self.pending: list[int] = []
        self.warnings: list[Warning] = []
        self.number = number
        self.arrived = arrived
        self.found = 0
        self.known = 0
        self.cached_seen = 0
        self.looked_up: int | None = None
        self.leader: Task | None = None
        self.share = 0
        self.pushed_back = 0
        self.in_flight = False
        self.leaving = False
        self.opened = False
        self.reported = False
        self.opening = Opened(
            rid=submit.rid,
            choice=submit.choice,
            epoch=submit.epoch,
            stop=params.stop,
            include_stop=params.include_stop,
            skip_special_tokens=params.skip_special_tokens,
            shown_ids=params.shown_ids,
            output_ids=submit.output_ids,
            delivered=submit.delivered,
        )
        self.guesser: Guesser | None = None
        self.stops = StopMatcher(params.stop) if params.stop else None
        start = params.prompt_logprobs_from
        self.scored: list[TokenLogprobs] | None = None if start is None else []
        self.score_next = self.score_end if start is None else max(start - 1, 0)
        if start == 0:  # nothing precedes the first token
            self.scored = [TokenLogprobs(submit.prompt_ids[0], None)]

    @property
    def score_end(self) -> int:
        """Past the last position whose logits can be scored: a prompt token must follow it."""
        return self.request.prompt_len - 1

    @property
    def todo(self) -> int:
        """Tokens that have no KV yet."""
        return self.request.length - self.request.computed

    @property
    def filling(self) -> bool:
        """Whether it still computes what it came with, rather than what it generates."""
        return self.request.computed < self.known

    @property
    def kv_end(self) -> int:
        """Most tokens that it will ever have KV of: the last output token needs none."""
        return max(self.request.prompt_len, self.end - 1)

    @property
    def match_limit(self) -> int:
        """Most tokens that may come from the cache.

        The last token is always computed, since its logits are needed. So is every position that
        is still to be scored: the log-probability of prompt token i comes from position i - 1.
        """
        last = self.request.length - 1
        return min(last, self.score_next) if self.score_next < self.score_end else last
