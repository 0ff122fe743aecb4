"""What every child process does first and last: ``python -m sapwood.srt.processes ROLE FD DIR``."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import signal
import socket
import traceback
from collections.abc import Callable

from ..errors import LoadError, UsageError
from ..log import configure
from .lifeline import Lifeline, Start

PROGRAMS = {
    "worker": "sapwood.srt.worker",
    "detokenizer": "sapwood.srt.detokenizer",
    "front": "sapwood.srt.front.process",
}
"""The module of each role; its ``run(start, lifeline)`` is the process, and returns when told."""
_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Runs one child; the parent's end of the socket pair decides over its life."""
    program, descriptor, directory = argv
    # The parent coordinates the end: a Ctrl-C goes to all processes of the terminal.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    lifeline = Lifeline(connection, directory)
    start = lifeline.start()
    if start.role == "worker":
        die_with_parent()
    configure(start.config.log, start.role)
    return _run(program, start, lifeline)


def _run(program: str, start: Start, lifeline: Lifeline) -> int:
    try:
        run: Callable[[Start, Lifeline], None] = importlib.import_module(program).run
        run(start, lifeline)
    except (LoadError, UsageError) as error:
        lifeline.failed(str(error))
        return 1
    except BaseException as error:  # the top of a process
        lifeline.failed(f"{type(error).__name__}: {error}", traceback.format_exc())
        return 1
    return 0


def die_with_parent() -> None:
    """Has the kernel kill this process when its parent dies, even in the middle of native code.

    The others end by their lifelines, and clear up before they do.
    """
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the lifeline remains
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
