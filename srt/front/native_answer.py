"""SGLang's native answers, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..messages import Finish, TokenLogprobs
from .bodies import GenerateBody
from .entry import Call, Choice, Entry
from .openai_replies import DONE, encode, frame
from .token_names import TokenNames, finite

_Pair = tuple[float | None, int, str | None]
"""Log-probability, id, and the text where it was asked for."""


class _Part:
    """One choice, and its log-probabilities as far as they have been written down."""

    __slots__ = ("choice", "entry", "pairs", "told", "tops")

    def __init__(self, entry: Entry, choice: Choice) -> None:
        self.entry = entry
        self.choice = choice
        self.told = 0
        self.pairs: list[_Pair] = []
        self.tops: list[list[_Pair] | None] = []


class NativeAnswer:
    """Writes the answer to one native request. Streams repeat the whole text so far each time."""

    def __init__(self, call: Call, body: GenerateBody, names: TokenNames) -> None:
        self._call = call
        self._names = names
        self._with_text = bool(body.return_text_in_logprobs)
        several = isinstance(body.text, list) or _is_nested(body.input_ids)
        self._listed = several or len(call.choices) > 1
        self._open = [_Part(entry, choice) for entry in call.entries for choice in entry.choices]

    def whole(self) -> bytes:
        """The body of an answer that is not streamed: an object, or a list of them."""
        answers = [self._answer(part) for part in self._open]
        return encode(answers if self._listed else answers[0])

    def news(self) -> bytes:
        """Frames for the choices that have grown since the last call."""
        frames = []
        for part in self._open:
            count = len(part.choice.ids)
            if part.choice.finish is None and part.told == count:
                continue
            part.told = count
            answer = self._answer(part)
            if self._listed:
                answer["index"] = part.choice.index
            frames.append(frame(answer))
        self._open = [part for part in self._open if part.choice.finish is None]
        return b"".join(frames)

    def end(self) -> bytes:
        """The mark that ends a stream."""
        return DONE

    def _answer(self, part: _Part) -> dict[str, Any]:
        choice = part.choice
        answer: dict[str, Any] = {
            "text": choice.text,
            "output_ids": choice.ids,
            "meta_info": self._meta(part),
        }
        if choice.warnings and choice.finish is not None:
            answer["warnings"] = choice.warnings
        return answer

    def _meta(self, part: _Part) -> dict[str, Any]:
        entry, choice = part.entry, part.choice
        meta: dict[str, Any] = {
            "id": entry.prompt.name or entry.rid,
            "finish_reason": _finish(choice),
            "prompt_tokens": len(entry.prompt.ids),
            "completion_tokens": len(choice.ids),
            "cached_tokens": choice.cached,
            "seed": self._call.seed,
        }
        if choice.finish is not None:
            meta["e2e_latency"] = time.monotonic() - entry.opened_at
        if entry.prompt.params.logprobs is not None:
            meta.update(self._logprobs(part))
        return meta

    def _logprobs(self, part: _Part) -> dict[str, Any]:
        """Those of the output are written down once, however often they are sent."""
        params, choice = part.entry.prompt.params, part.choice
        new = choice.logprobs[len(part.pairs) :]
        part.pairs += self._pairs(new)
        found: dict[str, Any] = {"output_token_logprobs": part.pairs}
        if params.logprobs:
            part.tops += self._tops(new)
            found["output_top_logprobs"] = part.tops
        if params.prompt_logprobs_from is not None:
            scored = choice.prompt_logprobs or []
            found["input_token_logprobs"] = self._pairs(scored)
            if params.prompt_logprobs_top:
                found["input_top_logprobs"] = self._tops(scored)
        return found

    def _pairs(self, items: Sequence[TokenLogprobs]) -> list[_Pair]:
        return [(finite(item.logprob), item.id, self._text(item.id)) for item in items]

    def _tops(self, items: Sequence[TokenLogprobs]) -> list[list[_Pair] | None]:
        return [
            None
            if item.logprob is None
            else [(finite(value), token, self._text(token)) for token, value in item.top]
            for item in items
        ]

    def _text(self, token: int) -> str | None:
        return self._names.name(token) if self._with_text else None


def _finish(choice: Choice) -> dict[str, Any] | None:
    """SGLang's ``finish_reason`` object."""
    finish: Finish | None = choice.finish
    if finish is None:
        return None
    if finish.reason == "length":
        return {"type": "length", "length": len(choice.ids)}
    if finish.reason == "stop":
        return {"type": "stop", "matched": finish.matched}
    return {"type": "abort", "message": finish.message or "the request was aborted"}


def _is_nested(ids: list[Any] | None) -> bool:
    return bool(ids) and isinstance(ids[0] if ids else None, list)
