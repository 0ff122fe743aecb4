"""Compiles schemas in processes of their own, beside whoever asks."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .child import Child
from .compile import Compiled, ConstraintCompiler
from .refusal import Refusal
from .spec import Choice, Constraint, JsonSchema, StructuralTag
from .transfer import Transfer
from .vocabulary import Vocabulary

MEMORY = 1 << 30
"""Bytes that compiling may take, in each process."""

MOST = 2
"""Processes."""

STARTING = 30.0
"""Seconds that a process may take to start."""


class RemoteCompiler:
    """A ``ConstraintCompiler`` whose long work does not hold the interpreter lock.

    Schemas, tags with schemas and choices are read in another process: on two processors a thread
    that does so doubles the time of a step, which asks for the lock hundreds of times. What comes
    back is built here in native code. Other kinds compile here: their long parts are native, or
    in processes of their own already. So do schemas until the first process has started.

    ``encode`` must be picklable; where it is not, everything compiles here.
    """

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]]) -> None:
        self._here = ConstraintCompiler(vocabulary, encode)
        self._transfer = Transfer(self._here.shared)
        self._setup: Any = (MEMORY, vocabulary, encode)
        self._lock = threading.Condition()
        self._idle: list[Child] = []
        self._count = 0  # of processes that work, wait or start
        self._has_started = False
        try:
            pickle.dumps(encode)
        except Exception:  # pickle raises what it likes
            self._setup = None

    def compile(self, constraint: Constraint, deadline: float) -> Compiled:
        """Compiles; ``Refusal`` says what is malformed or cannot be enforced, and where.

        ``TimeoutError`` after the deadline, a time of ``time.monotonic``.
        """
        if self._setup is None or not isinstance(constraint, JsonSchema | StructuralTag | Choice):
            return self._here.compile(constraint)
        child = self._child(deadline)
        if child is None:
            return self._here.compile(constraint)
        try:
            answer = child.ask(constraint, deadline)
        except EOFError:
            answer = ("memory",)
            self._drop(child)
        except BaseException:
            self._drop(child)
            raise
        else:
            self._give_back(child)
        return self._built(answer)

    def _built(self, answer: Any) -> Compiled:
        if answer[0] == "ok":
            made: Compiled = self._transfer.loads(answer[1])
            return made
        if answer[0] == "refused":
            raise Refusal(*answer[1:])
        if answer[0] == "memory":
            raise Refusal("", "", f"the constraint needs more than {MEMORY >> 20} MB to compile")
        raise RuntimeError(answer[1])

    def _child(self, deadline: float) -> Child | None:
        """A process that is free; ``None`` while the very first one starts."""
        with self._lock:
            if not self._idle and self._count < MOST:
                self._count += 1
                threading.Thread(target=self._start, daemon=True).start()
            if not self._has_started:
                return None
            while not self._idle:
                if not self._lock.wait(max(deadline - time.monotonic(), 0)):
                    raise TimeoutError
            return self._idle.pop()

    def _start(self) -> None:
        path = os.pathsep.join(each for each in sys.path if each)
        command = [sys.executable, "-m", "sapwood.constrain.compile_child"]
        child = None
        try:
            child = Child(command, self._setup, {**os.environ, "PYTHONPATH": path})
            child.ask("ready", time.monotonic() + STARTING)
        except (OSError, EOFError, TimeoutError):
            if child is not None:
                child.end()
            with self._lock:
                self._count -= 1
        else:
            with self._lock:
                self._has_started = True
            self._give_back(child)

    def _give_back(self, child: Child) -> None:
        with self._lock:
            self._idle.append(child)
            self._lock.notify()

    def _drop(self, child: Child) -> None:
        child.end()
        with self._lock:
            self._count -= 1
