"""SGLang's native answers, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..messages import Finish, TokenLogprobs
from .bodies import GenerateBody
from .entry import Call, Choice, Entry
from .openai_replies import DONE, encode
from .token_names import TokenNames, finite, finite_number


class NativeAnswer:
    """Writes the answer to one native request. Streams repeat the whole text so far each time."""

    def __init__(self, call: Call, body: GenerateBody, names: TokenNames) -> None:
        self._call = call
        self._names = names
        self._with_text = bool(body.return_text_in_logprobs)
        several = isinstance(body.text, list) or _is_nested(body.input_ids)
        self._listed = several or len(call.choices) > 1
        self._open = [(entry, choice) for entry in call.entries for choice in entry.choices]
        self._told: dict[int, int] = {}

    def whole(self) -> bytes:
        """The body of an answer that is not streamed: an object, or a list of them."""
        answers = [self._answer(entry, choice) for entry, choice in self._open]
        return encode(answers if self._listed else answers[0])

    def news(self) -> bytes:
        """Frames for the choices that have grown since the last call."""
        frames = []
        for entry, choice in self._open:
            seen = len(choice.ids) + 1
            if choice.finish is None and (self._told.get(choice.index) == seen or not choice.ids):
                continue
            self._told[choice.index] = seen
            answer = self._answer(entry, choice)
            if self._listed:
                answer["index"] = choice.index
            frames.append(b"data: " + encode(answer) + b"\n\n")
        self._open = [(entry, choice) for entry, choice in self._open if choice.finish is None]
        return b"".join(frames)

    def end(self) -> bytes:
        """The mark that ends a stream."""
        return DONE

    def _answer(self, entry: Entry, choice: Choice) -> dict[str, Any]:
        return {
            "text": choice.text,
            "output_ids": choice.ids,
            "meta_info": self._meta(entry, choice),
        }

    def _meta(self, entry: Entry, choice: Choice) -> dict[str, Any]:
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
        params = entry.prompt.params
        if params.logprobs is not None:
            meta["output_token_logprobs"] = self._pairs(choice.logprobs)
            if params.logprobs:
                meta["output_top_logprobs"] = self._tops(choice.logprobs)
            if params.prompt_logprobs_from is not None:
                scored = choice.prompt_logprobs or []
                meta["input_token_logprobs"] = self._pairs(scored)
                if params.prompt_logprobs_top:
                    meta["input_top_logprobs"] = self._tops(scored)
        return meta

    def _pairs(self, items: Sequence[TokenLogprobs]) -> list[tuple[float | None, int, str | None]]:
        return [(finite(item.logprob), item.id, self._text(item.id)) for item in items]

    def _tops(
        self, items: Sequence[TokenLogprobs]
    ) -> list[list[tuple[float, int, str | None]] | None]:
        return [
            None
            if item.logprob is None
            else [(finite_number(value), token, self._text(token)) for token, value in item.top]
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
