"""Compiles constraints in processes of their own, beside whoever asks."""

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
from .refusal import BusyError, Refusal
from .spec import Constraint, Grammar
from .transfer import Transfer
from .vocabulary import Vocabulary

MEMORY = 1 << 30
"""Bytes that compiling may take, in each process."""

QUICK = 0.1
"""Seconds of processor time after which a constraint is no quick one."""

PATIENCE = 3.0
"""Seconds that the process for quick ones may take all the same, before it is killed."""

MOST_WAITING = 8
"""Constraints that may wait for the process for long ones."""

_START = "import os; os.nice({}); import sapwood.constrain.compile_child as child; child.main()"
"""What a process runs. The threads of a model's step wait for each other, and all lose what one
loses to another process: so already the imports come after the priority."""

_NICENESS = {False: 10, True: 19}
"""Of the process for quick ones, and of that for long ones: what they do is left over time."""

STARTING = 30.0
"""Seconds that a process may take to start."""


class RemoteCompiler:
    """A ``ConstraintCompiler`` whose long work does not hold the interpreter lock.

    Constraints are read in another process: on two processors a thread that does so doubles the
    time of a step, which asks for the lock hundreds of times. What comes back is built here in
    native code. Lark grammars compile here: all of that is native. So do all others until the first
    process has started.

    There are two: one for all, in which each gets a little time, and one of the lowest priority for
    what is not done by then; so that long ones hold up neither steps nor other constraints.
    ``encode`` must be picklable; where it is not, everything compiles here.
    """

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]]) -> None:
        self._here = ConstraintCompiler(vocabulary, encode)
        self._transfer = Transfer(self._here.shared)
        self._setup: Any = (vocabulary, encode)
        self._lock = threading.Condition()
        self._idle: dict[bool, Child] = {}  # by whether it is for long ones
        self._running: set[bool] = set()  # those that work, wait or start
        self._long = 0  # constraints that are in the process for long ones, or wait for it
        self._has_started = False
        try:
            pickle.dumps(encode)
        except Exception:  # pickle raises what it likes
            self._setup = None

    def prepare(self) -> None:
        """Starts the first process, if that has not been done."""
        if self._setup is not None:
            with self._lock:
                self._run(long=False)

    def compile(self, constraint: Constraint, deadline: float) -> Compiled:
        """Compiles; ``Refusal`` says what is malformed or cannot be enforced, and where.

        ``TimeoutError`` after the deadline, a time of ``time.monotonic``; ``BusyError`` where too
        many that take long are waiting.
        """
        native = isinstance(constraint, Grammar) and constraint.syntax == "lark"
        if native or self._setup is None:
            return self._here.compile(constraint)
        self.prepare()
        if not self._has_started:
            return self._here.compile(constraint)
        patience = time.monotonic() + PATIENCE
        answer: Any = ("slow",)
        try:
            answer = self._asked(constraint, min(patience, deadline), long=False)
        except TimeoutError:
            if patience >= deadline:
                raise
        if answer[0] == "slow":
            answer = self._asked_at_length(constraint, deadline)
        return self._built(answer)

    def _asked_at_length(self, constraint: Constraint, deadline: float) -> Any:
        with self._lock:
            if self._long >= MOST_WAITING:
                raise BusyError
            self._long += 1
        try:
            return self._asked(constraint, deadline, long=True)
        finally:
            with self._lock:
                self._long -= 1

    def _asked(self, constraint: Constraint, deadline: float, *, long: bool) -> Any:
        child = self._child(deadline, long)
        try:
            answer = child.ask(constraint, deadline)
        except EOFError:
            answer = ("memory",)
            self._drop(child, long)
        except BaseException:
            self._drop(child, long)
            raise
        else:
            self._give_back(child, long)
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

    def _child(self, deadline: float, long: bool) -> Child:
        """The process, once it is free."""
        with self._lock:
            while long not in self._idle:
                self._run(long)
                if not self._lock.wait(max(deadline - time.monotonic(), 0)):
                    raise TimeoutError
            return self._idle.pop(long)

    def _run(self, long: bool) -> None:
        if long not in self._running:
            self._running.add(long)
            threading.Thread(target=self._start, args=(long,), daemon=True).start()

    def _start(self, long: bool) -> None:
        path = os.pathsep.join(each for each in sys.path if each)
        command = [sys.executable, "-c", _START.format(_NICENESS[long])]
        setup = (MEMORY, None if long else QUICK, *self._setup)
        child = None
        try:
            child = Child(command, setup, {**os.environ, "PYTHONPATH": path})
            child.ask("ready", time.monotonic() + STARTING)
        except (OSError, EOFError, TimeoutError):
            if child is not None:
                child.end()
            with self._lock:
                self._running.discard(long)
        else:
            with self._lock:
                self._has_started = True
            self._give_back(child, long)

    def _give_back(self, child: Child, long: bool) -> None:
        with self._lock:
            self._idle[long] = child
            self._lock.notify_all()

    def _drop(self, child: Child, long: bool) -> None:
        child.end()
        with self._lock:
            self._running.discard(long)
            self._lock.notify_all()
