"""Where programs without an event loop of their own wait for their requests."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Background:
    """An event loop in one daemon thread, started when first needed, once in each process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop; a forked child gets one of its own."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="sapwood-programs", daemon=True
                )
                thread.start()
                atexit.register(_stop, self._loop, thread)
            return self._loop


BACKGROUND = Background()


LAST = 1.0
"""Seconds that requests have to end in when Python ends."""


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:  # tasks that are dropped while they wait are complained of
        loop.run_until_complete(asyncio.wait(left, timeout=LAST))


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if thread.is_alive():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2 * LAST)
    if not loop.is_running():
        loop.close()


def is_current(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this very thread runs the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def spawn(work: Callable[[], Any], name: str) -> Future[Any]:
    """Runs ``work`` in a daemon thread, in a copy of this context.

    A thread of a pool would be joined when Python ends: a program that hangs would keep it alive.
    """
    done: Future[Any] = Future()
    context = contextvars.copy_context()

    def body() -> None:
        try:
            result = context.run(work)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(target=body, name=name, daemon=True).start()
    return done
