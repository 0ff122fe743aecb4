"""A state's work: operations in the order in which the program wrote them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Protocol

from .run import Enough, Run
from .transcript import Transcript
from .variables import Failure, Feed, Variable


class Operation(Protocol):
    """One thing to do on a state, or to fail."""

    @property
    def site(self) -> str:
        """``file:line`` of the program that asked for it, and what it asked for."""
        ...

    @property
    def writes(self) -> bool:
        """Whether it does nothing but append a text or a role's border."""
        ...

    def run(self, line: Line) -> Awaitable[None] | None:
        """Does it, at once or as an awaitable."""
        ...

    def fail(self, failure: Failure) -> None:
        """Tells whoever waits for it."""
        ...


class Line:
    """Runs one operation after the other in a task that lives while there are any.

    Whoever writes does not wait. A fork's line starts once the parent's reaches the fork. After a
    failure everything that follows fails with it.
    """

    __slots__ = (
        "_asked", "_ready",
        "_waiting", "declared", "failure", "feed", "log", "run", "task", "transcript",
        "variables",
    )  # fmt: skip

    def __init__(
        self, run: Run, transcript: Transcript | None, variables: dict[str | None, Variable]
    ) -> None:
        self.run = run
        self.transcript = transcript if transcript is not None else Transcript()
        self.variables = variables
        self.feed = Feed()
        self.declared = Feed()
        self.failure: Failure | None = None
        self.task: asyncio.Task[None] | None = None
        self.log: list[Operation] | None = None if run.recording == "nothing" else []
        self._ready = transcript is not None
        self._waiting = False
        self._asked: deque[Operation] = deque()
        run.lines.append(self)
        if run.over:
            self.declared.end(run.failure)

    def declare(self, name: str | None, variable: Variable) -> Variable:
        """Gives a name its variable; readers of it wait from now on."""
        self.variables[name] = variable
        self.declared.push(name or "")
        return variable

    def put(self, operation: Operation) -> None:
        """Appends an operation; raises a failure that the program has already seen, and what
        ended the run."""
        if self.failure is not None and self.failure.delivered:
            self.failure.deliver()
        if self.run.failure is not None:
            self.run.failure.deliver()
        if self.log is not None:
            self.log.append(operation)
            if self.run.recording == "texts" and not operation.writes:
                raise Enough
        self._asked.append(operation)
        self.run.post(self._wake)

    @property
    def idle(self) -> bool:
        """Whether all that was put is done."""
        return not self._asked

    def begin(self, transcript: Transcript) -> None:
        """Starts a fork's line, on the loop."""
        self.transcript = transcript
        self._ready = True
        self._wake()

    def fail(self, failure: Failure) -> None:
        """Fails all that is and will be put, on the loop."""
        if self.failure is None:
            self.failure = failure
        self.feed.end(self.failure)
        if not self._ready:
            self.begin(self.transcript)

    def cancel(self, failure: Failure) -> None:
        """Stops the operation in flight and fails the rest; a line without work stays whole."""
        if self.idle:
            return
        self.fail(failure)
        if self.task is not None and self._waiting:
            self.task.cancel()  # one that has not begun would never fail what is asked of it

    def write(self, text: str) -> None:
        """Appends a text to the transcript and to the feed."""
        self.transcript.write(text)
        if text:
            self.feed.push(text)

    def _wake(self) -> None:
        if self._ready and self.task is None and self._asked:
            self.task = self.run.loop.create_task(self._work())

    async def _work(self) -> None:
        while self._asked:
            operation = self._asked[0]
            await self._one(operation)
            self._asked.popleft()
        self.task = None

    async def _one(self, operation: Operation) -> None:
        try:
            if self.failure is None:
                waiting = operation.run(self)
                if waiting is not None:
                    self._waiting = True
                    await waiting
        except asyncio.CancelledError as error:
            self.fail(self.run.failure or Failure(error))
        except Exception as error:
            error.add_note(f"in {operation.site}")
            self.fail(Failure(error))
        self._waiting = False
        if self.failure is not None:
            operation.fail(self.failure)
