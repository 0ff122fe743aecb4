"""``Engine``: the offline API, and what the language runs on without a server."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack, overload

from ..chat_template import ChatTemplate, template_sources
from ..checkpoint import find_model, open_checkpoint
from ..config import CacheConfig, ModelOptions, SchedulerConfig, check
from ..core import Core
from ..detokenizer import Detokenizer
from ..front.cursor import Cursor
from ..front.entry import Call, Prepared
from ..front.held import Held
from ..front.model_info import ModelInfo
from ..messages import ControlReply, StepStats
from ..params import SamplingParams
from .chats import Chats
from .constraints import Constraining, held
from .loop import Loop, Opening
from .prompts import PromptLike, Prompts, is_batch
from .results import Completion, Piece, Score, completions, piece


class Engine:
    """A model in this process. Thread-safe; also usable from a running event loop.

    ``model`` is what ``sapwood serve`` takes: a GGUF file, a checkpoint directory, a hub name, or
    nothing for the default model. Further keywords are fields of ``ModelOptions``, ``CacheConfig``
    and ``SchedulerConfig``. Raises ``LoadError`` for a model that cannot be served and
    ``UsageError`` for an option that cannot be.

    A prompt is a text, a list of token ids, or a chat's messages; a list of prompts gives a list
    of results in the same order. All of them run together and share prefixes.
    """

    def __init__(self, model: str | None = None, **options: Any) -> None:
        if "torch" not in sys.modules:
            # As for the server's worker: OpenMP threads that spin for milliseconds starve each
            # other once anything else runs. What the user has set stays.
            os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        from ..runner import ModelRunner

        model_options: ModelOptions = _take(ModelOptions, options)
        cache: CacheConfig = _take(CacheConfig, options)
        scheduler: SchedulerConfig = _take(SchedulerConfig, options)
        if options:
            raise TypeError(f"Engine() got an unknown option {next(iter(options))!r}")
        path = find_model(model if model is not None else model_options.model)
        checkpoint = open_checkpoint(path)
        self.model = ModelInfo.of(
            checkpoint,
            created=0,
            context_length=model_options.context_length,
            served_name=model_options.served_name,
        )
        tokenizer = checkpoint.tokenizer
        sources = template_sources(checkpoint.chat_templates, model_options.chat_template)
        template = ChatTemplate(sources, tokenizer)
        self._chats = Chats(self.model, tokenizer, template)
        self._prompts = Prompts(self.model, tokenizer, template, self._chats.format)
        runner = ModelRunner.load(model_options, cache, scheduler, checkpoint)
        runner.warm_up()
        core = Core.of(runner, checkpoint, scheduler, self.model.context_length)
        detokenizer = Detokenizer(tokenizer.token_bytes, tokenizer.special_ids)
        self._loop = Loop(core, detokenizer)

    @overload
    def generate(
        self,
        prompts: str,
        params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
        **constraint: Unpack[Constraining],
    ) -> Completion: ...
    @overload
    def generate(
        self,
        prompts: PromptLike | Sequence[PromptLike],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cache_salt: str | None = None,
        **constraint: Unpack[Constraining],
    ) -> Any: ...
    def generate(
        self,
        prompts: Any,
        params: Any = None,
        *,
        cache_salt: str | None = None,
        **constraint: Unpack[Constraining],
    ) -> Completion | list[Any]:
        """Runs prompts to their ends. With ``n`` above 1 a prompt's result is a list of samples.

        Further keywords hold all of them to a constraint: see ``Constraining``.
        The first failure is raised, and the others are cancelled.
        """
        batch = is_batch(prompts)
        asked = prompts if batch else [prompts]
        prepared = self._prepare(asked, params, cache_salt, held(constraint))
        results = self._run(prepared)
        return results if batch else results[0]

    async def agenerate(
        self,
        prompts: Any,
        params: Any = None,
        *,
        cache_salt: str | None = None,
        **constraint: Unpack[Constraining],
    ) -> Any:
        """``generate`` on an event loop; cancelling the task cancels the requests."""
        batch = is_batch(prompts)
        asked = prompts if batch else [prompts]
        given = held(constraint)
        prepared = await asyncio.to_thread(self._prepare, asked, params, cache_salt, given)
        results = await self._arun(prepared)
        return results if batch else results[0]

    async def achat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The server's chat completions, tools included: its JSON in, its JSON out (docs/http.md),
        without ``stream``. Cancelling the task cancels the request."""
        chat = await asyncio.to_thread(self._chats.read, body)
        call = await self._acall(chat.prepared)
        return self._chats.reply(call, chat.body)

    async def acomplete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The server's completions, as ``achat`` is its chat completions."""
        given = await asyncio.to_thread(self._chats.read_completion, body)
        call = await self._acall(given.prepared)
        return self._chats.reply_completion(call, given.body)

    def stream(
        self,
        prompt: PromptLike,
        params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
        **constraint: Unpack[Constraining],
    ) -> Iterator[Piece]:
        """Yields text as it comes. Leaving the loop early cancels the request."""
        news = threading.Event()
        prepared = self._prompts.prepared(prompt, params, cache_salt, held(constraint))
        opening = self._loop.open(prepared, True, news.set)
        pieces = _Pieces(opening)
        try:
            while not pieces.finished:
                news.wait()
                news.clear()
                yield from pieces.take()
        finally:
            self._cancel([opening])

    async def astream(
        self,
        prompt: PromptLike,
        params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
        **constraint: Unpack[Constraining],
    ) -> AsyncIterator[Piece]:
        """``stream`` for programs with an event loop."""
        news = asyncio.Event()
        given = held(constraint)
        prepared = await asyncio.to_thread(
            self._prompts.prepared, prompt, params, cache_salt, given
        )
        opening = self._loop.open(prepared, True, _setter(news))
        pieces = _Pieces(opening)
        try:
            while not pieces.finished:
                await news.wait()
                news.clear()
                for piece in pieces.take():
                    yield piece
        finally:
            self._cancel([opening])

    def score(
        self,
        prompt: PromptLike,
        continuations: Sequence[str | Sequence[int]],
        *,
        cache_salt: str | None = None,
    ) -> list[Score]:
        """Log-probabilities of each continuation after the prompt; the prompt is computed once."""
        wholes = [self._prompts.continuation(prompt, text) for text in continuations]
        prepared = [self._scoring(ids, start, cache_salt) for ids, start in wholes]
        results = self._run(prepared)
        return [_score(ids, start, r) for (ids, start), r in zip(wholes, results, strict=True)]

    async def ascore(
        self,
        prompt: PromptLike,
        continuations: Sequence[str | Sequence[int]],
        *,
        cache_salt: str | None = None,
    ) -> list[Score]:
        """``score`` for programs with an event loop."""
        wholes = [self._prompts.continuation(prompt, text) for text in continuations]
        results = await self._arun([self._scoring(ids, at, cache_salt) for ids, at in wholes])
        return [_score(ids, start, r) for (ids, start), r in zip(wholes, results, strict=True)]

    def tokenize(
        self,
        prompt: PromptLike,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> list[int]:
        """The ids that a prompt is run as; for chats the two options of the server's chats."""
        return self._prompts.ids(
            prompt, answers=add_generation_prompt, continues=continue_final_message
        )

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of token ids."""
        return self._prompts.tokenizer.decode(list(ids), skip_special=skip_special)

    def flush_cache(self) -> bool:
        """Empties the prefix cache; ``False``, and nothing changed, while requests are running."""
        answered = threading.Event()
        oks: list[bool] = []

        def on_reply(reply: ControlReply) -> None:
            oks.append(reply.ok)
            answered.set()

        self._loop.order(lambda: self._loop.ask("flush_cache", on_reply))
        while not answered.wait(1.0):
            if self._loop.error is not None:
                raise self._loop.error
        return oks[0]

    @property
    def stats(self) -> StepStats:
        """Counters and gauges as of the last step."""
        return self._loop.journal.stats

    def shutdown(self) -> None:
        """Ends the engine's thread; requests in flight get an error. May be called again."""
        self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def _prepare(
        self, prompts: Sequence[Any], params: Any, salt: str | None, held_to: Held | None
    ) -> list[Prepared]:
        each = params if isinstance(params, Sequence) else [params] * len(prompts)
        if len(each) != len(prompts):
            raise ValueError(f"{len(each)} sets of parameters for {len(prompts)} prompts")
        return [
            self._prompts.prepared(p, q, salt, held_to) for p, q in zip(prompts, each, strict=True)
        ]

    def _scoring(self, ids: list[int], start: int, salt: str | None) -> Prepared:
        params = SamplingParams(max_tokens=0, prompt_logprobs_from=start)
        return self._prompts.prepared(ids, params, salt)

    def _run(self, prepared: list[Prepared]) -> list[Any]:
        news = threading.Event()
        openings = [self._loop.open(one, False, news.set) for one in prepared]
        try:
            while not _all_ended(openings):
                news.wait()
                news.clear()
            return [_result(opening) for opening in openings]
        finally:
            self._cancel(openings)

    async def _arun(self, prepared: list[Prepared]) -> list[Any]:
        return [_result(opening) for opening in await self._aended(prepared)]

    async def _acall(self, prepared: Prepared) -> Call:
        (opening,) = await self._aended([prepared])
        return _call(opening)

    async def _aended(self, prepared: list[Prepared]) -> list[Opening]:
        news = asyncio.Event()
        notify = _setter(news)
        openings = [self._loop.open(one, False, notify) for one in prepared]
        try:
            while not _all_ended(openings):
                await news.wait()
                news.clear()
            return openings
        finally:
            self._cancel(openings)

    def _cancel(self, openings: Sequence[Opening]) -> None:
        for opening in openings:
            if not opening.ended:
                self._loop.order(_canceller(self._loop, opening))


class _Pieces:
    """Reads a call's choices from where it left off."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._cursors: list[Cursor] | None = None
        self.finished = False

    def take(self) -> list[Piece]:
        """What is new; raises what went wrong."""
        call = self._opening.check()
        if call is None:
            return []
        if self._cursors is None:
            self._cursors = [Cursor(choice) for choice in call.choices]
        ended = call.ended  # read before the news, so that nothing that comes later is lost
        pieces = []
        for cursor in self._cursors:
            news = cursor.take()
            if news is not None:
                pieces.append(piece(call, cursor.choice, news))
        self.finished = ended
        return pieces


def _canceller(loop: Loop, opening: Opening) -> Any:
    """Cancels in the loop's thread, where the call is known by then."""

    def order() -> None:
        if opening.call is not None:
            loop.journal.cancel(opening.call)

    return order


def _setter(news: asyncio.Event) -> Any:
    loop = asyncio.get_running_loop()

    def notify() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(news.set)

    return notify


def _all_ended(openings: Sequence[Opening]) -> bool:
    """Whether all have ended well; raises the first failure."""
    ended = True
    for opening in openings:
        opening.check()
        ended = ended and opening.ended
    return ended


def _call(opening: Opening) -> Call:
    call = opening.check()
    assert isinstance(call, Call), "an opening that has ended well has a call"
    return call


def _result(opening: Opening) -> Completion | list[Completion]:
    done = completions(_call(opening))
    return done[0] if len(done) == 1 else done


def _score(ids: list[int], start: int, result: Completion) -> Score:
    entries = result.prompt_logprobs or []
    assert len(entries) == len(ids) - start, "one log-probability for each scored token"
    values = [0.0 if entry.logprob is None else entry.logprob for entry in entries]
    return Score(ids[start:], values, start, result.prompt_tokens, result.cached_tokens)


def _take(kind: Any, options: dict[str, Any]) -> Any:
    """Builds a configuration from those of the options that are its fields, and checks it."""
    names = [name for name in kind.__dataclass_fields__ if name in options]
    made = kind(**{name: options.pop(name) for name in names})
    check(made)
    return made
