"""Compiles constraints beside the steps, and remembers what it compiled."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sapwood.constrain.refusal import BusyError, Refusal
from sapwood.constrain.spec import Constraint
from sapwood.constrain.vocabulary import Vocabulary

from .errors import RequestError
from .interruptible import Interruptible
from .log import Log

if TYPE_CHECKING:
    from sapwood.constrain.compile import Compiled
    from sapwood.constrain.remote import RemoteCompiler

CAPACITY = 512
"""Compiled constraints that are kept; the least recently used is dropped first."""

DEADLINE = 10.0
"""Seconds that a constraint may take to compile, waiting for its turn included."""

REFUSED = "constraint_refused"
"""The code of a constraint that is malformed or cannot be enforced."""

THREADS = 16
"""Constraints that compile at once: those that are long, and wait, do not hold up others."""

NICENESS = 19

MAX_WAITING = 256
"""Constraints that may wait to be compiled."""


class Compiling:
    """A constraint that is being compiled, or was. Once ``done``, ``result`` gives it."""

    __slots__ = ("_began", "_future", "deadline", "stop")

    def __init__(
        self, future: Future[Compiled], stop: Callable[[], None], began: float, deadline: float
    ) -> None:
        self._future = future
        self.stop = stop
        self._began = began
        self.deadline = began + deadline

    @property
    def done(self) -> bool:
        """Whether the result is there, a refusal perhaps."""
        return self._future.done()

    @property
    def passing(self) -> bool:
        """Whether it failed for what may be over by now."""
        failed = self._future.exception(timeout=0) if self.done else None
        return isinstance(failed, TimeoutError | BusyError)

    def result(self) -> Compiled:
        """The compiled constraint; ``RequestError`` where it was refused."""
        try:
            return self._future.result(timeout=0)
        except Refusal as refusal:
            raise RequestError(
                str(refusal), param=refusal.pointer or None, code=REFUSED
            ) from refusal
        except BusyError as error:
            raise RequestError(
                "too many constraints that take long to compile are waiting; try again later",
                code="queue_full",
                status=503,
            ) from error
        except TimeoutError as error:
            raise RequestError(
                f"the constraint was not compiled within {self.deadline - self._began:g} seconds",
                code="constraint_timeout",
            ) from error
        except Exception as error:  # whatever is wrong with a constraint ends its own request
            raise RequestError(
                f"the constraint cannot be compiled: {error!r}", code=REFUSED
            ) from error


class Constraints:
    """The constraints of one model's requests.

    Compiling happens in a thread of its own, one constraint at a time, each once for all who
    ask while it lasts or later. One that takes too long is stopped, and the next ones get
    another thread: native code may hold the first for a while yet. ``ask`` and ``info`` belong
    to one thread. Nothing is imported or made before ``prepare``, or the first constraint.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encode: Callable[[str], Sequence[int]],
        *,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vocabulary = vocabulary
        self._encode = encode
        self._deadline = deadline
        self._clock = clock
        self._compiler: RemoteCompiler | None = None
        self._making = threading.Lock()
        self._threads = _threads()
        self._known: OrderedDict[Constraint, Compiling] = OrderedDict()
        self._engines: dict[str, int] = {}
        self._asked = self._hits = self._refused = self._marked = 0
        self._log = Log("constraints")

    @property
    def words(self) -> int:
        """Words of a mask row."""
        return (self._vocabulary.size + 31) // 32

    @property
    def end_ids(self) -> frozenset[int]:
        """The tokens with which an output ends."""
        return self._vocabulary.eos_ids

    def prepare(self) -> None:
        """Makes ready for the first constraint, in a thread: it then compiles in a process, too."""
        self._threads.submit(lambda: self._made().prepare())

    def ask(self, constraint: Constraint) -> Compiling:
        """Starts to compile, unless that is done or under way. ``RequestError`` 503 where too many
        wait."""
        self._asked += 1
        known = self._known.get(constraint)
        if known is not None and not known.passing:
            self._hits += 1
            self._known.move_to_end(constraint)
            return known
        if sum(not each.done for each in self._known.values()) >= MAX_WAITING:
            raise RequestError(
                f"{MAX_WAITING} constraints wait to be compiled, and no more may; try again later",
                code="queue_full",
                status=503,
            )
        deadline = time.monotonic() + self._deadline
        work = Interruptible(lambda: self._compile(constraint, deadline))
        future = self._threads.submit(work)
        compiling = Compiling(future, work.stop, self._clock(), self._deadline)
        self._known[constraint] = compiling
        self._forget()
        return compiling

    def give_up(self, constraint: Constraint) -> None:
        """Stops one that takes too long."""
        given_up = self._known.pop(constraint, None)
        if given_up is not None:
            given_up.stop()
            self._log.warning("a constraint takes too long to compile", seconds=self._deadline)
            self._threads.shutdown(wait=False, cancel_futures=False)
            self._threads = _threads()

    def mark(self, why: str) -> None:
        """Notes that an engine gave up in the middle of an output."""
        self._marked += 1
        self._log.error("an engine gave up under a constraint", reason=why)

    def overdue(self, compiling: Compiling) -> bool:
        """Whether one has had its time."""
        return not compiling.done and self._clock() >= compiling.deadline

    def info(self) -> dict[str, Any]:
        """``engines``: how many constraints each engine was chosen for; ``cached``, ``compiled``,
        ``hits``, ``refused`` and ``failed_in_use`` count constraints, or requests for them."""
        return {
            "engines": dict(self._engines),
            "cached": len(self._known),
            "compiled": sum(self._engines.values()),
            "hits": self._hits,
            "refused": self._refused,
            "failed_in_use": self._marked,
        }

    def _forget(self) -> None:
        if len(self._known) <= CAPACITY:
            return
        for constraint, compiling in self._known.items():
            if compiling.done:
                del self._known[constraint]
                return

    def _compile(self, constraint: Constraint, deadline: float) -> Compiled:
        """In a compiling thread."""
        try:
            compiled = self._made().compile(constraint, deadline)
        except BaseException:
            self._refused += 1
            raise
        self._engines[compiled.engine] = self._engines.get(compiled.engine, 0) + 1
        return compiled

    def _made(self) -> RemoteCompiler:
        with self._making:
            if self._compiler is None:
                from sapwood.constrain.remote import RemoteCompiler

                self._compiler = RemoteCompiler(self._vocabulary, self._encode)
            return self._compiler


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="sapwood-compile", initializer=_step_back)


def _step_back() -> None:
    """Lets steps go first, where there are no more processors than they use."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
