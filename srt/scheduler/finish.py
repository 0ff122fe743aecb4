"""When a sample ends."""

from __future__ import annotations

from collections.abc import Iterable

from ..messages import Finish
from ..params import SamplingParams
from ..stops import TokenText
from .task import Task


class FinishRules:
    """Decides after each token whether its sample ends with it. In this order:

    1. an end-of-sequence token, unless ``ignore_eos``, and one of ``stop_token_ids``: neither
       among the first ``min_tokens`` tokens. The token counts, but is no text.
    2. a stop string that is complete with this token, and at least ``min_tokens`` tokens.
    3. ``max_tokens`` or the end of the context.

    Reasons are "stop" with what matched, or "length".
    """

    def __init__(self, eos_ids: Iterable[int], text: TokenText) -> None:
        self._eos_ids = frozenset(eos_ids)
        self._text = text

    def stop_ids(self, ignore_eos: bool, stop_token_ids: tuple[int, ...]) -> frozenset[int]:
        """Tokens that end a sample."""
        if ignore_eos:
            return frozenset(stop_token_ids)
        return self._eos_ids.union(stop_token_ids) if stop_token_ids else self._eos_ids

    def after(self, task: Task, token: int) -> Finish | None:
        """Whether a task ends with ``token``, which it has just got. Moves its stop matcher on."""
        request = task.request
        params, output_len = request.params, request.output_len
        if token in request.stop_ids and output_len > params.min_tokens:
            return Finish("stop", token)
        if task.stops is not None:
            match = task.stops.feed(self._piece(token, params))
            if match is not None and output_len >= params.min_tokens:
                return Finish("stop", match.stop)
        return Finish("length") if request.length >= task.end else None

    def before(self, task: Task) -> Finish | None:
        """Whether a task that comes with output has ended already. Moves its stop matcher on.

        Stops among those tokens were not to end it: an end is reported with its token.
        """
        request = task.request
        if task.stops is not None:
            for token in request.tokens[request.prompt_len :].tolist():
                task.stops.feed(self._piece(token, request.params))
        return Finish("length") if request.output_len and request.length >= task.end else None

    def _piece(self, token: int, params: SamplingParams) -> bytes:
        """What a token adds to the text in which stop strings are looked for."""
        return self._text.of(token, params.skip_special_tokens, params.shown_ids)
