"""A runtime that counts what passes through it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import sapwood as sw
from sapwood.frontend_lang.backend import runtime_of
from sapwood.frontend_lang.runtime import Answer, Delta, Prompt, Request, Score, ScoreRequest


@dataclass
class Counts:
    """Of one task: requests, and tokens as their answers report them."""

    gens: int = 0
    selects: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0


class Counting:
    """Another runtime, counted."""

    def __init__(self, backend: Any) -> None:
        self._inner: sw.Runtime = runtime_of(backend)
        self.counts = Counts()

    async def generate(self, request: Request) -> list[Answer]:
        answers = await self._inner.generate(request)
        meta = answers[0].meta
        self.counts.gens += 1
        self.counts.prompt += meta["prompt_tokens"]
        self.counts.cached += meta["cached_tokens"]
        self.counts.output += meta["completion_tokens"]
        return answers

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        return self._inner.stream(request)

    async def score(self, request: ScoreRequest) -> list[Score]:
        scores = await self._inner.score(request)
        self.counts.selects += 1
        self.counts.prompt += sum(score.prompt_tokens for score in scores)
        self.counts.cached += sum(score.cached_tokens for score in scores)
        return scores

    async def render(self, prompt: Prompt) -> str:
        return await self._inner.render(prompt)

    async def flush(self) -> bool:
        return await self._inner.flush()
