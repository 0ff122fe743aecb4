"""Compiles constraints in processes of their own, beside whoever asks."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .child import Child
from .compile import Compiled, ConstraintCompiler
from .refusal import Refusal
from .spec import Constraint, Grammar
from .transfer import Transfer
from .vocabulary import Vocabulary

MEMORY = 1 << 30
"""Bytes that compiling may take, in each process."""

PATIENCE = 3.0
"""Seconds after which a constraint goes on in a process that does not yield to all others."""

_NICE = "import os; os.nice(19); "
_YIELDING = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); "
_SERVE = "import sapwood.constrain.compile_child as child; child.main()"
"""What a process runs. The threads of a model's step wait for each other, and all lose what one
loses to another process: so already the imports come after the priority."""

STARTING = 30.0
"""Seconds that a process may take to start."""


class RemoteCompiler:
    """A ``ConstraintCompiler`` whose long work does not hold the interpreter lock.

    Constraints are read in another process: on two processors a thread that does so doubles the
    time of a step, which asks for the lock hundreds of times. What comes back is built here in
    native code. Lark grammars compile here: all of that is native. So do all others until the first
    process has started.

    There are two: one that yields the processors to everybody, and one for what it does not get
    done in time. ``encode`` must be picklable; where it is not, everything compiles here.
    """

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]]) -> None:
        self._here = ConstraintCompiler(vocabulary, encode)
        self._transfer = Transfer(self._here.shared)
        self._setup: Any = (vocabulary, encode)
        self._lock = threading.Condition()
        self._idle: dict[bool, Child] = {}  # by whether it yields
        self._running: set[bool] = set()  # those that work, wait or start
        self._has_started = False
        try:
            pickle.dumps(encode)
        except Exception:  # pickle raises what it likes
            self._setup = None

    def prepare(self) -> None:
        """Starts the first process, if that has not been done."""
        if self._setup is not None:
            with self._lock:
                self._run(yields=True)

    def compile(self, constraint: Constraint, deadline: float) -> Compiled:
        """Compiles; ``Refusal`` says what is malformed or cannot be enforced, and where.

        ``TimeoutError`` after the deadline, a time of ``time.monotonic``.
        """
        native = isinstance(constraint, Grammar) and constraint.syntax == "lark"
        if native or self._setup is None:
            return self._here.compile(constraint)
        self.prepare()
        if not self._has_started:
            return self._here.compile(constraint)
        patience = time.monotonic() + PATIENCE
        if patience < deadline:
            with suppress(TimeoutError):
                return self._built(self._asked(constraint, patience, yields=True))
        return self._built(self._asked(constraint, deadline, yields=False))

    def _asked(self, constraint: Constraint, deadline: float, *, yields: bool) -> Any:
        child = self._child(deadline, yields)
        try:
            answer = child.ask(constraint, deadline)
        except EOFError:
            answer = ("memory",)
            self._drop(child, yields)
        except BaseException:
            self._drop(child, yields)
            raise
        else:
            self._give_back(child, yields)
        return answer

    def _built(self, answer: Any) -> Compiled:
        if answer[0] == "ok":
            made: Compiled = self._transfer.loads(answer[1])
            return made
        if answer[0] == "refused":
            raise Refusal(*answer[1:])
        if answer[0] == "memory":
            raise Refusal("", "", f"the constraint needs more than {MEMORY >> 20} MB to compile")
        raise RuntimeError(answer[1])

    def _child(self, deadline: float, yields: bool) -> Child:
        """The process, once it is free."""
        with self._lock:
            while yields not in self._idle:
                self._run(yields)
                if not self._lock.wait(max(deadline - time.monotonic(), 0)):
                    raise TimeoutError
            return self._idle.pop(yields)

    def _run(self, yields: bool) -> None:
        if yields not in self._running:
            self._running.add(yields)
            threading.Thread(target=self._start, args=(yields,), daemon=True).start()

    def _start(self, yields: bool) -> None:
        path = os.pathsep.join(each for each in sys.path if each)
        code = _NICE + (_YIELDING if yields and hasattr(os, "SCHED_IDLE") else "") + _SERVE
        command = [sys.executable, "-c", code]
        setup = (MEMORY, *self._setup)
        child = None
        try:
            child = Child(command, setup, {**os.environ, "PYTHONPATH": path})
            child.ask("ready", time.monotonic() + STARTING)
        except (OSError, EOFError, TimeoutError):
            if child is not None:
                child.end()
            with self._lock:
                self._running.discard(yields)
        else:
            with self._lock:
                self._has_started = True
            self._give_back(child, yields)

    def _give_back(self, child: Child, yields: bool) -> None:
        with self._lock:
            self._idle[yields] = child
            self._lock.notify_all()

    def _drop(self, child: Child, yields: bool) -> None:
        child.end()
        with self._lock:
            self._running.discard(yields)
            self._lock.notify_all()
