"""An ``Engine`` as a runtime: the model in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from .bodies import openai_body
from .chats import LEAD, chat, chat_options, shared
from .openai_shape import answers
from .refusal import refuse
from .runtime import Answer, Delta, Prompt, Request, Sampling, Score, ScoreRequest

_CONSTRAINTS = (
    "json_schema", "regex", "ebnf", "grammar", "structural_tag", "lenient", "whitespace",
)  # fmt: skip
_RENAMED = ("no_stop_trim", "return_logprob", "logprob_start_len", "top_logprobs_num")
_APART = frozenset({*_CONSTRAINTS, *_RENAMED, "on_budget", "return_text_in_logprobs", "cache_salt"})
_CANNOT = ("stop_regex", "priority", "tool_choice", "parallel_tool_calls")
_INPUT = ("logprob_start_len",)


class EngineRuntime:
    """Tokenises as the server's chat endpoint does, and runs ids.

    Safe on any event loop: the engine has a thread of its own.
    """

    def __init__(self, engine: Any) -> None:
        from sapwood import SamplingParams

        self._engine = engine
        self._params = SamplingParams

    async def generate(self, request: Request) -> list[Answer]:
        """All samples of one prompt."""
        if request.sampling.tools is not None:
            return await self._with_tools(request)
        params, options = self._asked(request.sampling)
        ids = await asyncio.to_thread(self._ids, request.prompt)
        done = await self._engine.agenerate(ids, params, **options)
        samples = done if isinstance(done, list) else [done]
        return [
            Answer(text=s.text, meta=self._meta(s, s.ids, s.logprobs, len(ids), request.sampling))
            for s in samples
        ]

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """One sample in pieces; with tools in one piece."""
        if request.sampling.tools is not None:
            (answer,) = await self._with_tools(request)
            yield Delta(text=answer.text, meta=answer.meta, tool_calls=answer.tool_calls)
            return
        params, options = self._asked(request.sampling)
        ids = await asyncio.to_thread(self._ids, request.prompt)
        written: list[int] = []
        logprobs: list[Any] = []
        async for piece in self._engine.astream(ids, params, **options):
            written += piece.ids
            logprobs += piece.logprobs
            meta = None
            if piece.finish is not None:
                meta = self._meta(piece, written, logprobs or None, len(ids), request.sampling)
            yield Delta(text=piece.text, meta=meta)

    async def score(self, request: ScoreRequest) -> list[Score]:
        """All continuations in one batch after what they share."""
        base, wholes = await asyncio.to_thread(self._wholes, request)
        start = len(base)
        scores = await self._engine.ascore(base, [ids[start:] for ids in wholes])
        return [
            Score(
                ids=tuple(score.ids),
                logprobs=tuple(score.logprobs),
                prompt_tokens=score.prompt_tokens,
                cached_tokens=score.cached_tokens,
            )
            for score in scores
        ]

    async def render(self, prompt: Prompt) -> str:
        """The text of the ids."""
        ids = await asyncio.to_thread(self._ids, prompt, opens=False)
        return str(self._engine.decode(ids, skip_special=False))

    async def warm(self, prompt: Prompt) -> None:
        """Runs the prompt without an answer."""
        ids = await asyncio.to_thread(self._ids, prompt, opens=False)
        if ids:
            await self._engine.agenerate(ids, self._params(max_tokens=0))

    async def flush(self) -> bool:
        """Empties the engine's prefix cache."""
        return bool(await asyncio.to_thread(self._engine.flush_cache))

    async def _with_tools(self, request: Request) -> list[Answer]:
        """As the server's chat completions: they alone show tools and read calls."""
        refuse("the engine", request.sampling.changed(), ("stop_regex",))
        refuse("the engine, with tools,", request.sampling.changed(), _INPUT)
        _, body = openai_body(request)
        if request.sampling.return_logprob:
            body |= {"logprobs": True, "top_logprobs": request.sampling.top_logprobs_num}
        return answers(await self._engine.achat(body))

    def _ids(self, prompt: Prompt, *, opens: bool = True) -> list[int]:
        if not prompt.is_chat:
            return list(self._engine.tokenize(prompt.text))
        return list(self._engine.tokenize(chat(prompt), **chat_options(prompt, opens)))

    def _wholes(self, request: ScoreRequest) -> tuple[list[int], list[list[int]]]:
        """Ids of what all wholes begin with, and the wholes."""
        prompt = request.prompt
        base = self._ids(prompt)
        wholes = [
            self._ids(prompt.extended(c)) if isinstance(c, str) else [*base, *c]
            for c in request.continuations
        ]
        start = shared(base, wholes)
        if start == 0:
            lead = self._ids(LEAD)
            return lead, [[*lead, *ids] for ids in wholes]
        return base[:start], wholes

    def _asked(self, sampling: Sampling) -> tuple[Any, dict[str, Any]]:
        """Parameters, and the keywords that go beside them."""
        changed = sampling.changed()
        refuse("the engine", changed, _CANNOT)
        given = {key: value for key, value in changed.items() if key not in _APART}
        given["max_tokens"] = sampling.max_tokens
        if given.get("top_k") == -1:
            given["top_k"] = 0
        if sampling.no_stop_trim:
            given["include_stop"] = True
        if sampling.return_logprob:
            given["logprobs"] = sampling.top_logprobs_num
            if sampling.logprob_start_len is not None and sampling.logprob_start_len >= 0:
                given["prompt_logprobs_from"] = sampling.logprob_start_len
                given["prompt_logprobs_top"] = sampling.top_logprobs_num
        options = {key: changed[key] for key in (*_CONSTRAINTS, "cache_salt") if key in changed}
        if sampling.on_budget is not None:
            options["on_budget"] = sampling.on_budget
        return self._params(**given), options

    def _meta(
        self, done: Any, ids: list[int], logprobs: Any, prompt_tokens: int, sampling: Sampling
    ) -> dict[str, Any]:
        """Of a finished sample, or of the last piece of a stream."""
        meta = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": len(ids),
            "cached_tokens": done.cached_tokens,
            "finish_reason": _finish(done.finish, len(ids)),
            "seed": done.seed,
            "output_ids": ids,
        }
        if done.warnings:
            meta["warnings"] = done.warnings
        for name, entries in (("output", logprobs), ("input", done.prompt_logprobs)):
            if entries is not None:
                meta[f"{name}_token_logprobs"] = [
                    (e.logprob, e.id, self._text(e.id, sampling)) for e in entries
                ]
                meta[f"{name}_top_logprobs"] = [
                    [(value, token, self._text(token, sampling)) for token, value in e.top]
                    for e in entries
                ]
        return meta

    def _text(self, token: int, sampling: Sampling) -> str | None:
        if not sampling.return_text_in_logprobs:
            return None
        return str(self._engine.decode([token], skip_special=False))


def _finish(finish: Any, written: int) -> dict[str, Any]:
    if finish.reason == "length":
        return {"type": "length", "length": written}
    if finish.reason == "stop":
        return {"type": "stop", "matched": finish.matched}
    return {"type": finish.reason, "message": finish.message}
