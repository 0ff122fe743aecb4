"""Holds the rows of a step to their constraints: masks before the draw, the matcher after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from sapwood.constrain.matcher import MaskRow, Matcher, Verdict

from .batch import Batch, Sampled
from .errors import RequestError
from .messages import TokenLogprobs
from .request import Request

MAX_DRAWS = 8
"""Draws of one token, each vetoed, after which the shortest way to an end is taken."""


class Redraws(Protocol):
    """What a runner does for rows whose token was not taken."""

    def redraw(
        self, batch: Batch, logits: Any, index: int, mask: MaskRow, attempt: int
    ) -> int | None:
        """Another token for row ``index``; ``None`` where nothing may be drawn."""
        ...

    def report(self, batch: Batch, logits: Any, index: int, token: int) -> list[TokenLogprobs]:
        """The log-probabilities that row ``index`` asked for, of a token that was not drawn."""
        ...


class Guidance:
    """Keeps the mask rows and the counts. One step at a time: ``masks``, then ``settle``."""

    def __init__(
        self, words: int, end_ids: Iterable[int], on_trouble: Callable[[str], None]
    ) -> None:
        self._on_trouble = on_trouble
        self._end_ids = frozenset(end_ids)
        self._end_token = min(self._end_ids)
        self._rows = np.zeros((8, words), np.int32)
        self.forced = self.vetoed = self.closed = self.rows = 0

    def enter(self, request: Request) -> list[int]:
        """Takes a request in that has a matcher: tokens that must come first, if any.

        ``RequestError`` where the budget does not hold the shortest output that is known, or none
        is known.
        """
        matcher, room = request.matcher, _room(request, 0)
        assert matcher is not None
        if request.output_len:
            matcher.consume(request.tokens[request.prompt_len :].tolist())
        elif room and not request.may_be_cut:
            least = len(matcher.completion())
            if not least:
                raise RequestError(
                    "how short an output of this grammar can be is not known, so that it cannot "
                    'be sure to end within its budget; on_budget "cut" takes it all the same',
                    code="constraint_refused",
                )
            if least > room:
                raise RequestError(
                    f"the shortest output that the constraint allows has {least} tokens, and the "
                    f"budget is {room}",
                    param="max_tokens",
                    code="budget_too_small",
                )
        if request.params.logprobs is not None or not room:
            return []  # what is reported of each token is its own: each is drawn
        return self.follow(request, 0)

    def masks(self, batch: Batch) -> list[MaskRow | None] | None:
        """A mask for each row that samples under a constraint; ``None`` if no row does.

        A row whose matcher fails gets none: ``settle`` deals with it.
        """
        held = [row.request.matcher if row.sample_from < row.stop else None for row in batch.rows]
        count = sum(matcher is not None for matcher in held)
        if not count:
            return None
        if len(self._rows) < count:
            self._rows = np.zeros((2 * count, self._rows.shape[1]), np.int32)
        free = iter(self._rows)
        masks: list[MaskRow | None] = []
        for matcher, row in zip(held, batch.rows, strict=True):
            masks.append(None if matcher is None else _filled(matcher, next(free), row.request))
        self.rows += count
        return masks

    def settle(
        self,
        batch: Batch,
        logits: Any,
        sampled: Sampled,
        masks: list[MaskRow | None],
        runner: Redraws,
    ) -> Sampled:
        """Moves the matchers on by what was drawn, and adds what must follow."""
        for index, row in enumerate(batch.rows):
            request = row.request
            if request.matcher is None or row.sample_from == row.stop:
                continue
            if sampled.errors[index] is not None and masks[index] is not None:
                continue
            try:
                if masks[index] is None:  # its matcher could not even fill one
                    raise RuntimeError(request.trouble or "the matcher has failed")
                self._settle_row(batch, logits, sampled, index, masks[index], runner)
            except Exception as error:
                self._rescue(request, sampled, index, error)
        return sampled

    def _settle_row(
        self,
        batch: Batch,
        logits: Any,
        sampled: Sampled,
        index: int,
        mask: MaskRow | None,
        runner: Redraws,
    ) -> None:
        request = batch.rows[index].request
        matcher = request.matcher
        assert matcher is not None
        assert mask is not None
        token: int | None = sampled.ids[index][0]
        drawn, verdict = token, self._advance(request, matcher, sampled.ids[index][0], 0)
        for attempt in range(1, MAX_DRAWS):
            if verdict != "veto" or token is None:
                break
            self.vetoed += 1
            mask[token // 32] &= np.int32(~np.uint32(1 << token % 32).view(np.int32))
            token = runner.redraw(batch, logits, index, mask, attempt)
            if token is not None:
                verdict = self._advance(request, matcher, token, 0)
        if verdict != "ok" or token is None:
            token = self._closing(request, matcher, token)
        ids = [token]
        if sampled.logprobs[index] is None:
            ids += self.follow(request, 1)
        elif token != drawn:
            sampled.logprobs[index] = runner.report(batch, logits, index, token)
        sampled.ids[index] = ids

    def _advance(self, request: Request, matcher: Matcher, token: int, taken: int) -> Verdict:
        """Moves on by a token that comes after ``taken`` others of this step."""
        verdict = matcher.advance(token, _remaining(request, taken))
        if verdict == "ok" and token in self._end_ids:
            request.complete = True
        return verdict

    def _closing(self, request: Request, matcher: Matcher, token: int | None) -> int:
        """The next token on the shortest known way to an end; without one, the token drawn."""
        self.closed += 1
        way = matcher.completion()
        if not way:
            if token is None:
                raise RuntimeError("the constraint leaves nothing to draw")
            matcher.consume([token])
            return token
        matcher.consume(way[:1])
        request.complete = way[0] in self._end_ids
        return way[0]

    def follow(self, request: Request, taken: int) -> list[int]:
        """Tokens that must come after the ``taken`` ones of this step; the matcher moves over them.

        Where nothing but the end can follow, the end token is the last of them, unless it does not
        end this request.
        """
        matcher = request.matcher
        assert matcher is not None
        followed: list[int] = []
        while not request.complete:
            more = matcher.forced()
            for token in more:
                left = _remaining(request, taken + len(followed))
                if left is not None and left < 0:
                    break
                if self._advance(request, matcher, token, taken + len(followed)) != "ok":
                    break
                followed.append(token)
            else:
                if more:
                    continue
            break
        if not request.complete and matcher.is_complete:
            request.complete = True
            if self._end_token in request.stop_ids and _room(request, taken + len(followed)) > 0:
                followed.append(self._end_token)
        self.forced += len(followed)
        return followed

    def _rescue(self, request: Request, sampled: Sampled, index: int, error: Exception) -> None:
        """Ends a row whose matcher has failed: with the last way to an end that was known."""
        matcher = request.matcher
        request.trouble = f"the constraint failed in use: {error}"
        self._on_trouble(request.trouble)
        try:
            way = [] if matcher is None else matcher.completion()
        except Exception:
            way = []
        if not way or sampled.logprobs[index] is not None:
            sampled.errors[index] = request.trouble
            return
        if self._end_token not in request.stop_ids:
            way = way[:-1]
        request.complete = True
        sampled.errors[index] = None
        sampled.ids[index] = way[: max(_room(request, 0), 1)]


def _filled(matcher: Matcher, row: MaskRow, request: Request) -> MaskRow | None:
    try:
        matcher.fill(row)
    except Exception as error:
        request.trouble = str(error)
        return None
    return row


def _room(request: Request, taken: int) -> int:
    """Tokens that the budget has left after ``taken`` more."""
    return request.end - request.length - taken


def _remaining(request: Request, taken: int) -> int | None:
    """Tokens that may follow one that comes after ``taken`` others, for ``Matcher.advance``."""
    return None if request.may_be_cut else _room(request, taken) - 1
