"""Work in a thread that another thread may stop."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Interruptible(Generic[T]):
    """A call for some thread to make, which ``stop`` ends from another.

    Python code ends at once, where nothing in it catches ``BaseException``; native code goes on
    until it returns, and must have bounds of its own.
    """

    __slots__ = ("_call", "_lock", "_stopped", "_thread")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._stopped = False

    def __call__(self) -> T:
        """Makes the call; ``TimeoutError`` where it was stopped, before it began perhaps."""
        try:
            with self._lock:
                if self._stopped:
                    raise _Stopped
                self._thread = threading.get_ident()
            try:
                return self._call()
            finally:
                with self._lock:
                    self._thread = None
        except _Stopped:
            raise TimeoutError("stopped") from None

    def stop(self) -> None:
        """Ends the call if it is being made, and keeps it from being made later."""
        with self._lock:
            self._stopped = True
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(_Stopped)
                )


class _Stopped(BaseException):
    """Not an error: no handler of errors may catch it."""
