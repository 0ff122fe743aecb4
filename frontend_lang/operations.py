"""What a line can do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from .expressions import Begin, End, Expression, Gen, Select, Text
from .line import Line, Operation
from .runtime import Answer, Request, ScoreRequest
from .runtime import Prompt as Prompt
from .transcript import Transcript
from .variables import Failure, Promise, Variable, settle


class Unreadable(ValueError):
    """An answer that is not of the type asked for: one that was cut, where the request asked for
    that, or one of a runtime that does not hold to it. ``text`` is the answer."""

    def __init__(self, text: str, error: Exception) -> None:
        super().__init__(f"the answer {text[:200]!r} cannot be read: {error}")
        self.text = text


class Write:
    """Appends a constant, or begins or ends a role."""

    __slots__ = ("expression", "site")
    writes = True

    def __init__(self, expression: Text | Begin | End, site: str) -> None:
        self.expression = expression
        self.site = site

    def run(self, line: Line) -> None:
        match self.expression:
            case Text(text):
                line.write(text)
            case Begin(role, fields):
                line.transcript.begin(role, fields)
            case End(role):
                line.transcript.end(role)

    def fail(self, failure: Failure) -> None:
        """Nobody waits for it."""


class Generate:
    """Asks the model and appends its answer."""

    __slots__ = ("expression", "site", "variable")
    writes = False

    def __init__(self, expression: Gen, variable: Variable, site: str) -> None:
        self.expression = expression
        self.variable = variable
        self.site = site

    async def run(self, line: Line) -> None:
        run = line.run
        request = Request(
            prompt=line.transcript.prompt(),
            sampling=run.sampling(self.expression.given),
            name=self.expression.name,
        )
        if run.streaming and request.sampling.n == 1:
            answers = [await self._streamed(line, request)]
        else:
            answers = await run.runtime.generate(request)
            self.variable.feed.push(answers[0].text)
            line.feed.push(answers[0].text)
        line.transcript.write(answers[0].text)
        line.transcript.call(answers[0].tool_calls)
        values = [self._value(answer) for answer in answers]
        texts, metas = [answer.text for answer in answers], [answer.meta for answer in answers]
        if request.sampling.n == 1:
            self.variable.resolve(values[0], metas[0], texts[0])
        else:
            self.variable.resolve(values, metas, texts)

    def fail(self, failure: Failure) -> None:
        self.variable.resolve(failure)

    async def _streamed(self, line: Line, request: Request) -> Answer:
        texts = []
        meta: dict[str, Any] = {}
        calls: tuple[Mapping[str, Any], ...] = ()
        async for delta in line.run.runtime.stream(request):
            if delta.text:
                texts.append(delta.text)
                self.variable.feed.push(delta.text)
                line.feed.push(delta.text)
            meta = delta.meta if delta.meta is not None else meta
            calls = (*calls, *delta.tool_calls)
        return Answer(text="".join(texts), meta=meta, tool_calls=calls)

    def _value(self, answer: Answer) -> Any:
        if not self.expression.typed or self.expression.parse is None:
            return answer.text
        try:
            return self.expression.parse(answer.text)
        except ValueError as error:
            raise Unreadable(answer.text, error) from error


class Choose:
    """Scores the choices and appends the best."""

    __slots__ = ("expression", "site", "variable")
    writes = False

    def __init__(self, expression: Select, variable: Variable, site: str) -> None:
        self.expression = expression
        self.variable = variable
        self.site = site

    async def run(self, line: Line) -> None:
        asked = self.expression
        runtime = line.run.runtime
        request = ScoreRequest(
            prompt=line.transcript.prompt(), continuations=asked.choices, name=asked.name
        )
        scores = await runtime.score(request)
        alone = None
        if asked.method.needs_unconditional:
            # The same tokens, without the prompt: only so are they comparable one by one.
            ids = tuple(score.ids for score in scores)
            alone = await runtime.score(
                ScoreRequest(prompt=Prompt(), continuations=ids, name=asked.name)
            )
        decision = asked.method.decide(scores, alone)
        meta = {
            "prompt_tokens": sum(score.prompt_tokens for score in (*scores, *(alone or ()))),
            "cached_tokens": sum(score.cached_tokens for score in (*scores, *(alone or ()))),
            **decision.meta,
        }
        text = asked.choices[decision.chosen]
        line.write(text)
        self.variable.feed.push(text)
        self.variable.resolve(text, meta)

    def fail(self, failure: Failure) -> None:
        self.variable.resolve(failure)


class Fork:
    """Starts the children from what stands here."""

    __slots__ = ("children", "site")
    writes = False

    def __init__(self, children: Sequence[Line], site: str) -> None:
        self.children = children
        self.site = site

    def run(self, line: Line) -> None:
        for child in self.children:
            child.begin(line.transcript.copy())

    def fail(self, failure: Failure) -> None:
        for child in self.children:
            child.fail(failure)


class Gather:
    """Makes a list of the children's values of one name."""

    __slots__ = ("site", "sources", "variable")
    writes = False

    def __init__(self, sources: Sequence[Variable], variable: Variable, site: str) -> None:
        self.sources = sources
        self.variable = variable
        self.site = site

    async def run(self, line: Line) -> None:
        got = [await awaited(source.promise) for source in self.sources]
        failed = [value for value in got if isinstance(value, Failure)]
        metas = [source.meta for source in self.sources]
        self.variable.resolve(failed[0] if failed else got, metas)

    def fail(self, failure: Failure) -> None:
        self.variable.resolve(failure)


class Concatenate:
    """Appends what the children have written since the fork, in their order."""

    __slots__ = ("ends", "site", "start")
    writes = False

    def __init__(self, start: Promise, ends: Sequence[Promise], site: str) -> None:
        self.start = start
        self.ends = ends
        self.site = site

    async def run(self, line: Line) -> None:
        start = self.start.result()  # this line's own, and earlier
        for end in self.ends:
            got = await awaited(end)
            if isinstance(got, Failure):
                got.delivered = True  # it goes on as this line's own
                raise got.error
            line.write(since(start, got))

    def fail(self, failure: Failure) -> None:
        """Nobody waits for it."""


class Look:
    """Reads the transcript at this place."""

    __slots__ = ("promise", "read", "site")
    writes = False

    def __init__(self, read: Callable[[Transcript], Any], site: str) -> None:
        self.read = read
        self.site = site
        self.promise: Promise = Future()

    def run(self, line: Line) -> None:
        settle(self.promise, self.read(line.transcript))

    def fail(self, failure: Failure) -> None:
        settle(self.promise, failure)


class Render:
    """The transcript's text at this place, as the model reads it."""

    __slots__ = ("promise", "site")
    writes = False

    def __init__(self, site: str) -> None:
        self.site = site
        self.promise: Promise = Future()

    async def run(self, line: Line) -> None:
        settle(self.promise, await line.run.render(line.transcript))

    def fail(self, failure: Failure) -> None:
        settle(self.promise, failure)


class Capture:
    """Fills a variable with what was written since a ``Look``."""

    __slots__ = ("site", "start", "variable")
    writes = False

    def __init__(self, start: Look, variable: Variable, site: str) -> None:
        self.start = start
        self.variable = variable
        self.site = site

    def run(self, line: Line) -> None:
        text = since(self.start.promise.result(), line.transcript)
        self.variable.feed.push(text)
        self.variable.resolve(text)

    def fail(self, failure: Failure) -> None:
        self.variable.resolve(failure)


def copied(transcript: Transcript) -> Transcript:
    """For a ``Look``: the transcript as it stands."""
    return transcript.copy()


def since(before: Transcript, after: Transcript) -> str:
    """The text written between two places; ``ValueError`` where it is not one text."""
    if len(before.messages) == len(after.messages) and before.role == after.role:
        return after.open_text[len(before.open_text) :]
    if before.role is None and after.role is None:
        return "".join(m.content for m in after.messages[len(before.messages) :])
    raise ValueError("a role begins on one side of this text and ends on the other")


def awaited(promise: Promise) -> Awaitable[Any]:
    """Waits on an event loop; a reader that is cancelled leaves the promise alone."""
    return asyncio.shield(asyncio.wrap_future(promise))


def operation(leaf: Expression, line: Line, site: str) -> Operation:
    """What an expression does; declares its variable."""
    match leaf:
        case Gen():
            variable = line.declare(leaf.name, Variable(leaf.parse))
            return Generate(leaf, variable, f"gen({leaf.name!r}) at {site}")
        case Select():
            variable = line.declare(leaf.name, Variable())
            return Choose(leaf, variable, f"select({leaf.name!r}) at {site}")
        case Text() | Begin() | End():
            return Write(leaf, f"the text written at {site}")
    raise TypeError(f"{type(leaf).__name__} cannot be appended to a state")
