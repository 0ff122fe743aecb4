"""The process in which constraints compile: what it takes can be limited, and hurts nobody.

Run as a module, by ``RemoteCompiler``. Answers are ``("ok", bytes)``, what ``Refusal`` says,
``("memory",)``, or ``("slow",)``.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import sys
import threading
import time
from typing import Any, BinaryIO

from .compile import ConstraintCompiler
from .refusal import Refusal
from .transfer import Transfer


def main() -> None:
    """Serves until the parent closes the pipe."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    setup = _read(source)
    if setup is None:
        return
    memory, quick, vocabulary, encode = setup
    compiler = ConstraintCompiler(vocabulary, encode)
    transfer = Transfer(compiler.shared)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + memory,) * 2)
    while (request := _read(source)) is not None:
        _write(sink, _limited(quick, compiler, transfer, request))


class _TooLongError(BaseException):
    """Nothing that expects an error may take this for one."""


def _limited(seconds: float | None, *asked: Any) -> Any:
    """``_answer``, or ``("slow",)`` after so many seconds of processor time (and ten times as many
    of any time, as where another process works)."""
    if seconds is None:
        return _answer(*asked)
    _stopped.clear()
    try:
        signal.signal(signal.SIGPROF, _stop)
        signal.signal(signal.SIGALRM, _stop)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
        answer = _answer(*asked)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except _TooLongError:
        return ("slow",)
    # Where it was native code that called back, the error has become another one.
    return ("slow",) if _stopped.is_set() else answer


_stopped = threading.Event()


def _stop(*_: Any) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    _stopped.set()
    raise _TooLongError


def _answer(compiler: ConstraintCompiler, transfer: Transfer, request: Any) -> Any:
    if request == "ready":
        return ("ready",)
    try:
        return ("ok", transfer.dumps(compiler.compile(request)))
    except Refusal as refusal:
        return ("refused", refusal.pointer, refusal.keyword, refusal.reason)
    except MemoryError:
        return ("memory",)
    except RecursionError:
        return ("refused", "", "", "nested too deep")
    except Exception as error:
        return ("failed", repr(error))


def _watch(parent: int) -> None:
    """Ends the process once its parent is gone, whatever it is doing."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _read(source: BinaryIO) -> Any:
    head = source.read(8)
    if len(head) < 8:
        return None
    return pickle.loads(source.read(struct.unpack("<Q", head)[0]))


def _write(sink: BinaryIO, value: Any) -> None:
    data = pickle.dumps(value, protocol=5)
    sink.write(struct.pack("<Q", len(data)) + data)
    sink.flush()


if __name__ == "__main__":
    main()
