"""What the front knows of a request in flight."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import NamedTuple

from sapwood.constrain.spec import Warning

from ..errors import RequestError
from ..messages import Delta, Finish, Submit, TokenLogprobs
from ..params import SamplingParams
from .held import Held
from .tool_use import Tools


class Prompt(NamedTuple):
    """One prompt to be sampled ``params.n`` times. ``name`` is the user's own rid for it; ``text``
    is what an echo shows; ``held`` what its samples are held to; ``budget_at`` the field of the
    request that says how many tokens they may have."""

    ids: list[int]
    params: SamplingParams
    name: str | None = None
    text: str | None = None
    held: Held | None = None
    budget_at: str = "max_tokens"


class Prepared(NamedTuple):
    """A request that is fit to be submitted: everything checked, every default filled in.

    ``names`` are further rids of the user's that stand for the whole request; ``tools`` what its
    answers may call. ``seed``, the user's
    or a fresh one, is that of all prompts.
    """

    prompts: list[Prompt]
    seed: int
    namespace: bytes = b""
    priority: int = 0
    names: tuple[str, ...] = ()
    tenant: str = ""
    tools: Tools | None = None


class Choice:
    """One sample: what has arrived of it. Grows at the ends alone, so that readers keep places.

    ``pieces`` joined are the text so far; ``logprobs``, where asked for, go with ``ids``.
    """

    __slots__ = (
        "cached",
        "finish",
        "ids",
        "index",
        "logprobs",
        "pieces",
        "prompt_logprobs",
        "warnings",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.ids: list[int] = []
        self.pieces: list[str] = []
        self.logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: list[TokenLogprobs] | None = None
        self.warnings: list[Warning] = []
        self.cached = 0
        self.finish: Finish | None = None

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self.pieces)

    def add(self, delta: Delta) -> bool:
        """Takes what is new in a delta; ``False`` where nothing is (it came twice).

        ``ValueError`` where tokens before it are missing: what follows would be wrong.
        """
        held = len(self.ids)
        if delta.index > held:
            raise ValueError(f"tokens {held} to {delta.index} are missing")
        new = delta.ids[held - delta.index :]
        if self.finish is not None:
            return False
        if delta.ids and not new:
            self.finish = delta.finish
            return delta.finish is not None
        if not held and not self.pieces:
            self.cached = delta.cached
        self.ids.extend(new)
        if delta.text:
            self.pieces.append(delta.text)
        if delta.logprobs:
            self.logprobs.extend(delta.logprobs[len(delta.ids) - len(new) :])
        if delta.prompt_logprobs is not None and self.prompt_logprobs is None:
            self.prompt_logprobs = delta.prompt_logprobs
        if delta.warnings and not self.warnings:
            self.warnings = delta.warnings
        self.finish = delta.finish
        return True


class Entry:
    """One prompt's samples, which share an internal rid."""

    __slots__ = ("call", "choices", "epoch", "last_at", "names", "opened_at", "prompt", "rid")

    def __init__(self, call: Call, rid: str, prompt: Prompt, first_index: int, now: float) -> None:
        self.call = call
        self.rid = rid
        self.prompt = prompt
        self.epoch = 0
        self.choices = [Choice(first_index + i) for i in range(prompt.params.n)]
        self.names: list[tuple[str, str]] = []
        self.opened_at = now
        self.last_at: list[float | None] = [None] * prompt.params.n

    @property
    def done(self) -> bool:
        """Whether every sample has ended."""
        return all(choice.finish is not None for choice in self.choices)

    @property
    def cached(self) -> int:
        """Prompt tokens that were not computed, as of the first sample."""
        return self.choices[0].cached

    def submits(self) -> list[Submit]:
        """What the worker is to run, one message a sample."""
        call, params, held = self.call.prepared, self.prompt.params, self.prompt.held
        return [
            Submit(
                rid=self.rid,
                choice=i,
                epoch=self.epoch,
                prompt_ids=self.prompt.ids,
                params=params,
                seed=call.seed,
                namespace=call.namespace,
                priority=call.priority,
                constraint=None if held is None else held.constraint,
                on_budget="close" if held is None else held.on_budget,
            )
            for i in range(len(self.choices))
        ]


class Call:
    """A request as its client sees it: one or more prompts, answered together.

    Ends in exactly one of: all choices finished, ``error`` (a refusal or a failure, which ends
    every choice), ``cancelled`` (nobody wants the answer any more). With ``keeps_aborted`` a choice
    that was aborted counts as finished, and keeps what it has. One reader waits for news: with
    ``await call.changed()`` on an event loop, or through ``listen`` without one.
    """

    def __init__(
        self, prepared: Prepared, now: float, *, every_delta: bool, keeps_aborted: bool
    ) -> None:
        self.prepared = prepared
        self.keeps_aborted = keeps_aborted
        self.id = secrets.token_hex(16)
        self.entries: list[Entry] = []
        for i, prompt in enumerate(prepared.prompts):
            rid = self.id if i == 0 else f"{self.id}-{i}"
            self.entries.append(Entry(self, rid, prompt, i * prompt.params.n, now))
        self.choices = [choice for entry in self.entries for choice in entry.choices]
        self.error: RequestError | None = None
        self.cancelled = False
        self._open_choices = len(self.choices)
        self._every_delta = every_delta
        self._news = False
        self._waiter: asyncio.Future[None] | None = None
        self._listener: Callable[[], None] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._open_choices == 0 or self.error is not None or self.cancelled

    @property
    def seed(self) -> int:
        """The seed that repeats this request."""
        return self.prepared.seed

    @property
    def prompt_tokens(self) -> int:
        """Each prompt counted once."""
        return sum(len(entry.prompt.ids) for entry in self.entries)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were in the cache, each prompt counted once."""
        return sum(entry.cached for entry in self.entries)

    @property
    def completion_tokens(self) -> int:
        """Tokens of all choices."""
        return sum(len(choice.ids) for choice in self.choices)

    @property
    def warnings(self) -> list[Warning]:
        """What lenient constraints do without, each once, in the order of the prompts."""
        found = [
            warning if entry.prompt.held is None else entry.prompt.held.placed(warning)
            for entry in self.entries
            for choice in entry.choices
            for warning in choice.warnings
        ]
        return list(dict.fromkeys(found))

    def listen(self, callback: Callable[[], None]) -> None:
        """Calls back, in the thread that feeds the journal, whenever there is news."""
        self._listener = callback

    async def changed(self) -> None:
        """Returns once there is news since the last return: tokens, or the end."""
        if not self._news:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._news = False

    def choice_ended(self) -> None:
        """Counts an end; for the journal."""
        self._open_choices -= 1

    def wake(self) -> None:
        """Tells the reader; for the journal. Where only the whole answer is wanted, at the end."""
        if not self._every_delta and not self.ended:
            return
        self._news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._listener is not None:
            self._listener()
