"""A request as the scheduler sees it: tokens, and how many of them have KV."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .messages import Submit

if TYPE_CHECKING:
    from sapwood.constrain.matcher import Matcher

    from .memory.prefix_cache import Hold


class Request:
    """One sample in the making. Its state is ``tokens`` (prompt and output) and ``computed``.

    The scheduler owns it and alone changes it; the runner reads it. ``slot`` is the row number in
    ``[0, max_running)`` that a running request keeps until it leaves, so that a runner can keep
    per-request arrays; ``hold`` names the pages of the first ``computed`` tokens and of the step
    that is being computed. ``stop_ids`` are the tokens that end it: end of sequence unless it
    ignores that, and its own ``stop_token_ids``. ``end`` is the number of tokens at which it ends
    for its length. ``matcher`` holds its output to a constraint and stands after the last token;
    ``complete`` says that the output is, ``trouble`` what went wrong with the matcher.
    """

    __slots__ = (
        "_length",
        "_tokens",
        "cached",
        "choice",
        "complete",
        "computed",
        "end",
        "epoch",
        "hold",
        "matcher",
        "may_be_cut",
        "namespace",
        "params",
        "priority",
        "prompt_len",
        "rid",
        "seed",
        "slot",
        "stop_ids",
        "trouble",
    )

    def __init__(self, submit: Submit) -> None:
        ids = [*submit.prompt_ids, *submit.output_ids]
        self.rid = submit.rid
        self.choice = submit.choice
        self.epoch = submit.epoch
        self.namespace = submit.namespace
        self.priority = submit.priority
        self.params = submit.params
        self.seed = submit.seed
        self.prompt_len = len(submit.prompt_ids)
        self._tokens: npt.NDArray[np.int32] = np.empty(len(ids) + 64, np.int32)
        self._tokens[: len(ids)] = ids
        self._length = len(ids)
        self.computed = 0
        self.cached: int | None = None
        self.hold: Hold | None = None
        self.slot: int | None = None
        self.stop_ids: frozenset[int] = frozenset()
        self.end = len(ids)
        self.matcher: Matcher | None = None
        self.may_be_cut = submit.on_budget == "cut"
        self.complete = False
        self.trouble: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What tells this sample from all others that are alive."""
        return (self.rid, self.choice)

    @property
    def length(self) -> int:
        """Number of tokens, prompt and output."""
        return self._length

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        """All tokens, int32[length]; a view, to be read only."""
        return self._tokens[: self._length]

    @property
    def output_len(self) -> int:
        """Number of output tokens so far."""
        return self._length - self.prompt_len

    def upto(self, stop: int) -> npt.NDArray[np.int32]:
        """The first ``stop`` tokens, those drafted last among them, int32[stop]; a view, to be read
        only, and before the next token is appended."""
        return self._tokens[:stop]

    def banned_after(self, position: int) -> frozenset[int]:
        """Tokens that may not be drawn to follow ``position``: those that end the sample, before
        ``min_tokens``."""
        output_len = position + 1 - self.prompt_len
        return self.stop_ids if output_len < self.params.min_tokens else frozenset()

    def draft(self, tokens: npt.NDArray[np.int32]) -> None:
        """Writes what may come next behind the last token, without adding it."""
        stop = self._length + len(tokens)
        self._reserve(stop)
        self._tokens[self._length : stop] = tokens

    def append(self, token: int) -> None:
        """Adds one output token."""
        self._reserve(self._length + 1)
        self._tokens[self._length] = token
        self._length += 1

    def _reserve(self, size: int) -> None:
        if size > len(self._tokens):
            grown = np.empty(2 * size, np.int32)
            grown[: self._length] = self.tokens
            self._tokens = grown
