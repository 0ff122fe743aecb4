"""Writing answers to HTTP: whole ones, streams of events, errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import RequestError
from ..log import Log
from .entry import Call
from .journal import Journal
from .openai_replies import ErrorDetail, ErrorReply, encode, frame

ABORT_EXTENSION = "sapwood.abort"
"""A scope's extension: its ``abort`` drops the connection at once, with all that it still holds."""

_RETRY = {"retry-after": "1"}


class Answer(Protocol):
    """Turns a call into bytes for its client."""

    def whole(self) -> bytes:
        """The body of an answer that is not streamed; the call has finished."""
        ...

    def news(self) -> bytes:
        """Events for what has come since the last call."""
        ...

    def end(self) -> bytes:
        """Events after the last."""
        ...


class JsonBytes(Response):
    """A body that is JSON already."""

    media_type = "application/json"


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> JsonBytes:
    """A value as JSON."""
    return JsonBytes(encode(value), status, headers)


def error_reply(error: RequestError) -> ErrorReply:
    """OpenAI's error body."""
    return ErrorReply(ErrorDetail(error.message, error.type, error.param, error.code))


def error_response(error: RequestError) -> JsonBytes:
    """An error with its status; one that may pass says when to try again."""
    return json_response(error_reply(error), error.status, _RETRY if error.status == 503 else None)


class Streamed(Response):
    """An answer that is written as it comes, or once it is whole.

    The status waits for the first news, so that a refusal by the worker still has its own. The
    client's going away ends the call at once; so does a client that takes nothing for
    ``stall_seconds`` (then the connection is dropped).
    """

    def __init__(
        self,
        call: Call,
        answer: Answer,
        journal: Journal,
        *,
        stream: bool,
        stall_seconds: float,
    ) -> None:
        self._call = call
        self._answer = answer
        self._journal = journal
        self._stream = stream
        self._stall = stall_seconds
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        async with _watched(self._call, self._journal, receive):
            await self._call.changed()
            if self._call.error is not None:
                raise self._call.error
            if self._call.cancelled:
                return
            if self._stream:
                await self._events(scope, send)
            else:
                await self._whole(scope, receive, send)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {"x-seed": str(self._call.seed)}
        await JsonBytes(self._answer.whole(), headers=headers)(scope, receive, send)

    async def _events(self, scope: Scope, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-seed", str(self._call.seed).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        stall = Stall(self._stall, lambda: self._drop(scope))
        try:
            await self._write(send, stall)
        finally:
            stall.close()

    async def _write(self, send: Send, stall: Stall) -> None:
        call = self._call
        while not call.cancelled:
            ended = call.ended
            if call.error is not None:
                data = frame(error_reply(call.error))
            else:
                data = self._answer.news() + (self._answer.end() if ended else b"")
            if data:
                stall.begin()
                await send({"type": "http.response.body", "body": data, "more_body": not ended})
                stall.end()
            if ended:
                return
            await call.changed()

    def _drop(self, scope: Scope) -> None:
        """Lets go of a client that takes nothing; the end of its connection ends the write."""
        self._journal.cancel(self._call)
        Log("front").warning("client stalled", rid=self._call.id, seconds=self._stall)
        abort = (scope.get("extensions") or {}).get(ABORT_EXTENSION)
        if abort is not None:
            abort["abort"]()


class Stall:
    """Notices that one write has been waiting for ``seconds``, and then calls ``give_up``.

    One timer for a whole stream: a write costs it a look at the clock.
    """

    def __init__(self, seconds: float, give_up: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._give_up = give_up
        self._since: float | None = None
        self._timer = self._loop.call_later(seconds, self._look)

    def begin(self) -> None:
        """A write starts."""
        self._since = self._loop.time()

    def end(self) -> None:
        """The write is done."""
        self._since = None

    def close(self) -> None:
        """The stream is over."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        if now - since >= self._seconds:
            self._give_up()
        else:
            self._timer = self._loop.call_later(since + self._seconds - now, self._look)


@contextlib.asynccontextmanager
async def _watched(call: Call, journal: Journal, receive: Receive) -> AsyncIterator[None]:
    """Ends the call when its client goes away, or when the block is left before its end."""

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        journal.cancel(call)

    task = asyncio.create_task(wait_for_disconnect())
    try:
        yield
    finally:
        task.cancel()
        journal.cancel(call)


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The whole body. ``RequestError`` 413 as soon as it is known to be too large, 408 where it
    takes longer than ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            return await _read(request, limit)
    except TimeoutError:
        raise RequestError(
            f"the body did not come within {seconds:g} seconds", code="body_timeout", status=408
        ) from None


async def _read(request: Request, limit: int) -> bytes:
    too_large = RequestError(
        f"the body is larger than {limit} bytes", code="body_too_large", status=413
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_large
        parts.append(part)
    return b"".join(parts)
