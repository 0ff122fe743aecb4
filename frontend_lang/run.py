"""One run of a program: its loop, its runtime, and all states that it has made."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal

from . import loops
from .runtime import Runtime, Sampling
from .transcript import Transcript
from .variables import Failure, Promise, settle

if TYPE_CHECKING:
    from .line import Line


DETAILS = frozenset({"logprob_start_len", "top_logprobs_num", "return_text_in_logprobs"})

Recording = Literal["nothing", "all", "texts"]
"""What the lines of a run keep of what was put on them. With ``texts`` the program is ended by
``Enough`` at the first thing that is none."""


class Enough(BaseException):
    """Ends a program whose beginning was wanted alone. Not for ``except Exception``."""


class Run:
    """Shared by the states of one run. All their work happens on ``loop``."""

    __slots__ = (
        "_defaults",
        "ended",
        "failure",
        "lines",
        "loop",
        "nested",
        "over",
        "recording",
        "runtime",
        "streaming",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runtime: Runtime,
        defaults: Mapping[str, Any],
        *,
        streaming: bool = False,
        recording: Recording = "nothing",
    ) -> None:
        self.loop = loop
        self.runtime = runtime
        self.streaming = streaming
        self.recording = recording
        self.lines: list[Line] = []
        self.nested: list[Run] = []
        self.failure: Failure | None = None
        self.over = False
        self.ended: Promise = Future()
        self._defaults = defaults

    def sampling(self, given: Mapping[str, Any]) -> Sampling:
        """A ``gen``'s own parameters over those of the run.

        ``ValueError`` for details of log-probabilities that are not asked for: no runtime would
        take notice of them.
        """
        sampling = Sampling(**{**self._defaults, **given})
        if not sampling.return_logprob:
            for name in sampling.changed():
                if name in DETAILS:
                    raise ValueError(f"{name} goes with return_logprob=True, which is not set")
        return sampling

    def post(self, work: Callable[..., None], *args: Any) -> None:
        """Does ``work`` on the loop, in the order of the calls."""
        if loops.is_current(self.loop):
            work(*args)
        else:
            self.loop.call_soon_threadsafe(work, *args)

    async def render(self, transcript: Transcript) -> str:
        """A transcript's text, as the model reads it."""
        prompt = transcript.written()
        return await self.runtime.render(prompt) if prompt.is_chat else prompt.text

    def rendered(self, transcript: Transcript) -> str:
        """The same, waited for outside of the run's loop, which may be closed."""
        loop = loops.BACKGROUND.loop()
        return asyncio.run_coroutine_threadsafe(self.render(transcript), loop).result()

    def cancel(self, error: BaseException) -> None:
        """Cancels all requests; whatever is still awaited fails with ``error``."""
        failure = self.fail(error)
        if not self.loop.is_closed():
            self.post(self._cancel, failure)

    def fail(self, error: BaseException) -> Failure:
        """Keeps what ended the run; the first stays."""
        if self.failure is None:
            self.failure = Failure(error)
        return self.failure

    def end(self) -> None:
        """Nothing more will be declared: readers who wait for a name get the failure, or learn
        that there is none such."""
        self.over = True
        for line in self.lines:
            line.declared.end(self.failure)
            line.feed.end(line.failure or self.failure)
        settle(self.ended, None)

    async def drained(self) -> Failure | None:
        """Waits until no state has work left; the first failure that nobody has seen."""
        while tasks := [line.task for line in self.lines if line.task is not None]:
            await asyncio.wait(tasks)
        failures = [line.failure for line in self.lines if line.failure is not None]
        unseen = [failure for failure in failures if not failure.delivered]
        return unseen[0] if unseen else None

    def _cancel(self, failure: Failure) -> None:
        for line in self.lines:
            line.cancel(failure)


INSIDE: contextvars.ContextVar[Run | None] = contextvars.ContextVar("sapwood_run", default=None)
"""The run whose program's body this is."""
