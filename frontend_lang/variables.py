"""Values that are on their way: promises that hold a value or a failure, and growing texts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any


class Failure:
    """What went wrong, kept until somebody reads it. ``delivered`` once it was raised."""

    __slots__ = ("_traceback", "delivered", "error")

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self._traceback = error.__traceback__
        self.delivered = False

    def deliver(self) -> None:
        """Raises, with the traceback of where it happened and of where it is read."""
        self.delivered = True
        raise self.error.with_traceback(self._traceback)


Promise = Future[Any]
"""Resolves to a value or to a ``Failure``; it never holds an exception of its own."""


def settle(promise: Promise, value: Any) -> None:
    """Resolves a promise unless it is resolved."""
    if not promise.done():
        promise.set_result(value)


def opened(got: Any) -> Any:
    """The value; raises a failure."""
    if isinstance(got, Failure):
        got.deliver()
    return got


class Feed:
    """Pieces that come one by one, for any number of readers in threads and event loops."""

    __slots__ = ("_watchers", "ended", "failure", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.ended = False
        self.failure: Failure | None = None
        self._watchers: list[Callable[[], None]] = []

    def push(self, piece: str) -> None:
        """Appends a piece."""
        self.pieces.append(piece)
        self._tell()

    def end(self, failure: Failure | None = None) -> None:
        """No more will come; readers get the failure at the end. Only the first end counts."""
        if not self.ended:
            self.failure = failure
            self.ended = True
            self._tell()

    def __iter__(self) -> Iterator[str]:
        news = threading.Event()
        self._watchers.append(news.set)
        try:
            at = 0
            while True:
                news.clear()
                ended = self.ended  # read first: what was pushed before the end is then seen
                while at < len(self.pieces):
                    at += 1
                    yield self.pieces[at - 1]
                if ended:
                    break
                news.wait()
        finally:
            self._watchers.remove(news.set)
        opened(self.failure)

    async def __aiter__(self) -> AsyncIterator[str]:
        news = asyncio.Event()
        loop = asyncio.get_running_loop()

        def notify() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(news.set)

        self._watchers.append(notify)
        try:
            at = 0
            while True:
                news.clear()
                ended = self.ended
                while at < len(self.pieces):
                    at += 1
                    yield self.pieces[at - 1]
                if ended:
                    break
                await news.wait()
        finally:
            self._watchers.remove(notify)
        opened(self.failure)

    def _tell(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()


class Variable:
    """A named value of a state. ``raw`` is the text that it was made of, where it was made of
    one (a list of texts for several samples); ``parse`` reads such a text."""

    __slots__ = ("feed", "meta", "parse", "promise", "raw")

    def __init__(self, parse: Callable[[str], Any] | None = None) -> None:
        self.promise: Promise = Future()
        self.feed = Feed()
        self.meta: Any = {}
        self.raw: Any = None
        self.parse = parse

    def resolve(self, value: Any, meta: Any = None, raw: Any = None) -> None:
        """Gives it its value; ends its feed."""
        if meta is not None:
            self.meta = meta
        self.raw = value if raw is None else raw
        settle(self.promise, value)
        self.feed.end(value if isinstance(value, Failure) else None)


def of_value(value: Any) -> Variable:
    """A variable that has its value."""
    variable = Variable()
    if isinstance(value, str):
        variable.feed.push(value)
    variable.resolve(value)
    return variable
