"""``run_batch``: one program, many inputs."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

from . import loops
from .backend import DEFAULT
from .options import NAMES
from .program import Program, Started
from .progress import Progress
from .state import Outcome
from .warming import warm as heat

Item = tuple[tuple[Any, ...], dict[str, Any]]

NOT_OF_RUNS = frozenset({"stream", "use_thread"})


class Batch:
    """The runs of one batch, made one by one.

    ``settle`` is told of each that has ended. After ``stop`` no more are begun, and those that
    run are cancelled.
    """

    def __init__(self, program: Program[..., Any], items: Sequence[Item], raising: bool) -> None:
        self._program = program
        self._items = items
        self._raising = raising
        self._next = iter(range(len(items)))
        self._lock = threading.Lock()
        self._running: set[Started[Any]] = set()
        self._stopped: BaseException | None = None
        self.failed: BaseException | None = None
        self.done: queue.SimpleQueue[tuple[int, Outcome[Any]]] = queue.SimpleQueue()

    def work(self) -> None:
        """Runs items until there are no more; the body of a thread."""
        while (at := self._take()) is not None:
            started = self._start(at, loops.BACKGROUND.loop())
            started.quietly()
            self._ended(at, started)

    async def awork(self) -> None:
        """The same on an event loop."""
        while (at := self._take()) is not None:
            started = self._start(at, asyncio.get_running_loop())
            try:
                await started.aquietly()
            finally:
                self._ended(at, started)

    def stop(self, error: BaseException) -> None:
        """Ends all runs with an error."""
        with self._lock:
            self._stopped = error
            running = list(self._running)
        for started in running:
            started.fail(error)

    def _take(self) -> int | None:
        with self._lock:
            return None if self._stopped is not None else next(self._next, None)

    def _start(self, at: int, loop: asyncio.AbstractEventLoop) -> Started[Any]:
        args, given = self._items[at]
        arguments, options = self._program.split(args, given)
        started: Started[Any] = Started(self._program, args, arguments, options, loop)
        with self._lock:
            self._running.add(started)
            stopped = self._stopped
        if stopped is not None:
            started.fail(stopped)
        return started

    def _ended(self, at: int, started: Started[Any]) -> None:
        with self._lock:
            self._running.discard(started)
        failure = started.run.failure
        if failure is not None and self._raising and self.failed is None:
            self.failed = failure.error
        self.done.put((at, started.state))


def run_batch(
    program: Program[..., Any],
    batch_kwargs: Any,
    num_threads: int | str = "auto",
    progress_bar: bool = False,
    generator_style: bool = False,
    *,
    on_error: str = "return",
    warm: bool = True,
    **options: Any,
) -> Any:
    """States in the order of the items; each item is a dict of arguments or a tuple of them.

    ``num_threads`` programs run at a time; ``auto`` is 96, or 16 for each core where that is more.
    A program whose function is ``async def`` needs no thread. With ``generator_style`` an iterator
    gives states in order, each as soon as it and those before it have ended.

    ``on_error="return"`` puts the state of a program that failed in its place: its ``error()`` and
    ``ret_value`` tell what went wrong. ``"raise"`` raises the first failure and ends the others.

    The texts and messages that all items have in common at their beginning are computed once
    before (``warm``), which runs the program up to its first ``gen`` with stand-ins for arguments.
    """
    if loops.is_current(loops.BACKGROUND.loop()):
        raise RuntimeError("run_batch() in an async program would stop its event loop; use arun")
    items = _items(program, batch_kwargs, options)
    raising = _raising(on_error)
    threads = _threads(num_threads, len(items))
    if warm and len(items) > 1:
        heat(program, DEFAULT.resolve(options.get("backend")), _common(program, items))
    results = _results(Batch(program, items, raising), program, threads, len(items), progress_bar)
    return results if generator_style else list(results)


async def arun_batch(
    program: Program[..., Any],
    batch_kwargs: Any,
    num_threads: int | str = "auto",
    *,
    on_error: str = "return",
    warm: bool = True,
    **options: Any,
) -> list[Any]:
    """``run_batch`` on the caller's event loop."""
    items = _items(program, batch_kwargs, options)
    if warm and len(items) > 1:
        runtime = DEFAULT.resolve(options.get("backend"))
        await asyncio.to_thread(heat, program, runtime, _common(program, items))
    batch = Batch(program, items, _raising(on_error))
    tasks = [asyncio.create_task(batch.awork()) for _ in range(_threads(num_threads, len(items)))]
    results: dict[int, Any] = {}
    try:
        while tasks and len(results) < len(items):
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            while not batch.done.empty():
                at, state = batch.done.get()
                results[at] = state
            if batch.failed is not None:
                raise batch.failed
            for task in done:
                task.result()
    except BaseException as error:
        batch.stop(error)
        for task in tasks:
            task.cancel()
        raise
    return [results[at] for at in range(len(items))]


def _results(
    batch: Batch, program: Program[..., Any], threads: int, count: int, bar: bool
) -> Iterator[Any]:
    results: dict[int, Any] = {}
    progress = Progress(count, shown=bar)
    try:
        _begin(batch, program, threads)
        for at in range(count):
            while at not in results:
                place, state = batch.done.get()
                results[place] = state
                progress.one()
                if batch.failed is not None:
                    raise batch.failed
            yield results.pop(at)
    except GeneratorExit:
        batch.stop(CancelledError("the batch was left"))
        raise
    except BaseException as error:
        batch.stop(error if isinstance(error, Exception) else CancelledError("the batch was ended"))
        raise
    finally:
        progress.close()


def _begin(batch: Batch, program: Program[..., Any], threads: int) -> None:
    for at in range(threads):
        if program.is_async:
            asyncio.run_coroutine_threadsafe(batch.awork(), loops.BACKGROUND.loop())
        else:
            loops.spawn(batch.work, f"sapwood-{program.name}-{at}")


def _items(program: Program[..., Any], batch: Any, options: Mapping[str, Any]) -> list[Item]:
    for name in options:
        if name in NOT_OF_RUNS or (name not in NAMES and name not in program.argument_names):
            raise TypeError(f"run_batch() got an unknown option {name!r}")
    items = [_item(each, options) for each in batch]
    for at, (args, given) in enumerate(items):
        try:
            program.check(args, given)
        except TypeError as error:
            raise TypeError(f"item {at} of the batch: {error}") from error
    return items


def _item(given: Any, options: Mapping[str, Any]) -> Item:
    if isinstance(given, Mapping):
        return (), {**options, **given}
    if isinstance(given, tuple | list):
        return tuple(given), dict(options)
    raise TypeError(
        f"an item of a batch is a dict or a tuple of arguments, not {type(given).__name__}"
    )


def _threads(asked: int | str, count: int) -> int:
    if asked == "auto":
        asked = max(96, 16 * (os.cpu_count() or 1))
    if not isinstance(asked, int) or asked < 1:
        raise ValueError(f"num_threads is {asked!r}; it must be 'auto' or at least 1")
    return min(asked, count)


def _raising(on_error: str) -> bool:
    if on_error not in ("return", "raise"):
        raise ValueError(f"on_error is {on_error!r}; it must be 'return' or 'raise'")
    return on_error == "raise"


def _common(program: Program[..., Any], items: Sequence[Item]) -> dict[str, Any]:
    """The arguments that are the same in all items."""
    given = [program.arguments(args, named) for args, named in items]
    first = given[0]
    return {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] is value for other in given)
        or (isinstance(value, str) and all(other.get(key) == value for other in given))
    }
