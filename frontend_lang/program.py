"""``@function``: programs, and how one is run."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from . import loops
from .backend import DEFAULT
from .line import Line
from .options import sampling, split
from .run import INSIDE, Recording, Run
from .runtime import Runtime
from .state import Outcome, State
from .transcript import Transcript
from .variables import Failure

if TYPE_CHECKING:
    from .tracing import Trace

P = ParamSpec("P")
R = TypeVar("R")
Body = Callable[..., Any]


class Program(Generic[P, R]):
    """A function over a state, made by ``@function``. ``def`` or ``async def``.

    Its requests run on an event loop: that of the caller for ``arun``, else one that all programs
    of the process share.
    """

    def __init__(self, body: Body, bound: Mapping[str, Any] | None = None) -> None:
        parameters = list(inspect.signature(body).parameters.values())
        if not parameters or parameters[0].name != "s":
            raise ValueError(f"{body.__name__}(): the first parameter of a program must be `s`")
        self.body = body
        self.bound = dict(bound or {})
        self.parameters = tuple(parameters[1:])
        self.is_async = inspect.iscoroutinefunction(body)
        self._own = frozenset(p.name for p in self.parameters if p.kind is not p.VAR_KEYWORD)
        functools.update_wrapper(self, body)

    def run(self, *args: Any, **given: Any) -> Outcome[R]:
        """Runs the program to its end; raises what it raised, or what a request of it raised and
        nobody has seen. ``given`` are arguments and ``RunOptions``.

        With ``stream=True`` it returns at once, and readers of the state raise.
        """
        arguments, options = self.split(args, given)
        loop = loops.BACKGROUND.loop()
        if loops.is_current(loop):
            raise RuntimeError("run() in an async program would stop its event loop; await arun()")
        started = Started(self, args, arguments, options, loop)
        if options.get("stream"):
            loops.spawn(started.quietly, f"sapwood-{self.name}")
            return started.state
        return started.to_end()

    async def arun(self, *args: Any, **given: Any) -> Outcome[R]:
        """``run`` on the caller's event loop. Cancelling the task cancels the requests."""
        arguments, options = self.split(args, given)
        started = Started(self, args, arguments, options, asyncio.get_running_loop())
        if options.get("stream"):
            started.task = asyncio.create_task(started.aquietly())
            return started.state
        return await started.ato_end()

    @overload
    def run_batch(
        self,
        batch_kwargs: Iterable[Any],
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        generator_style: Literal[False] = False,
        **given: Any,
    ) -> list[Outcome[R]]: ...
    @overload
    def run_batch(
        self,
        batch_kwargs: Iterable[Any],
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        **given: Any,
    ) -> Any: ...
    def run_batch(
        self,
        batch_kwargs: Iterable[Any],
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        **given: Any,
    ) -> Any:
        """Runs the program once for each item; see ``batch.run_batch``."""
        from .batch import run_batch

        return run_batch(self, batch_kwargs, num_threads, progress_bar, generator_style, **given)

    async def arun_batch(
        self, batch_kwargs: Iterable[Any], num_threads: int | str = "auto", **given: Any
    ) -> list[Outcome[R]]:
        """``run_batch`` on the caller's event loop."""
        from .batch import arun_batch

        return await arun_batch(self, batch_kwargs, num_threads, **given)

    def bind(self, **given: Any) -> Program[..., R]:
        """The same program with some arguments or options set."""
        return Program(self.body, {**self.bound, **given})

    def trace(self, *args: Any, backend: Any = None, **given: Any) -> Trace:
        """What the program would send, as a tree; see ``tracing.trace``."""
        from .tracing import trace

        return trace(self, *args, backend=backend, **given)

    def cache(self, backend: Any = None) -> str:
        """Computes the program's constant beginning, and returns its text."""
        from .warming import warm

        return warm(self, DEFAULT.resolve(backend), self.bound, least=1)

    def __call__(self, *args: Any, **given: Any) -> Any:
        """With a state: goes on with it, and returns what the function returns. Without: runs.

        An async program's call is awaited.
        """
        if args and isinstance(args[0], State):
            arguments, _ = split({**self.bound, **given}, self._own)
            return self.body(*args, **arguments)
        return self.arun(*args, **given) if self.is_async else self.run(*args, **given)

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.body, "__name__", "program"))

    @property
    def argument_names(self) -> frozenset[str]:
        """The names of the program's own arguments."""
        return self._own

    def split(
        self, args: tuple[Any, ...], given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The program's arguments by name, and the options of its run."""
        return split({**self._unplaced(args), **given}, self._own)

    def check(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
        """``TypeError`` unless the program can be called so."""
        arguments, _ = self.split(args, given)
        inspect.signature(self.body).bind(None, *args, **arguments)

    def arguments(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments by name."""
        placed = {
            parameter.name: value for parameter, value in zip(self.parameters, args, strict=False)
        }
        return {**self.split(args, given)[0], **placed}

    def _unplaced(self, args: tuple[Any, ...]) -> dict[str, Any]:
        """What was bound, less what is now given by position."""
        placed = {parameter.name for parameter in self.parameters[: len(args)]}
        return {key: value for key, value in self.bound.items() if key not in placed}


class Started(Generic[R]):
    """One run of a program."""

    def __init__(
        self,
        program: Program[..., R],
        args: tuple[Any, ...],
        arguments: Mapping[str, Any],
        options: Mapping[str, Any],
        loop: asyncio.AbstractEventLoop,
        recording: Recording = "nothing",
    ) -> None:
        program.check(args, arguments)
        around = INSIDE.get()
        self._program = program
        self._args = args
        self._arguments = arguments
        self.run = Run(
            loop,
            _runtime(options.get("backend"), around),
            sampling(options),
            streaming=bool(options.get("stream")),
            recording=recording if around is None else around.recording,
        )
        if around is not None and around.recording == "all":
            around.nested.append(self.run)
        self.state: Outcome[R] = Outcome(self.run, Line(self.run, Transcript(), {}))
        self.task: asyncio.Task[None] | None = None
        self._timeout = options.get("timeout")

    def to_end(self) -> Outcome[R]:
        """In this thread, to the end; raises what went wrong."""
        timer = self._timer()
        try:
            returned = self._body_in_thread()
            draining = asyncio.run_coroutine_threadsafe(self.run.drained(), self.run.loop)
            failure = draining.result()
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            timer()
        return self._ended(returned, failure)

    async def ato_end(self) -> Outcome[R]:
        """On this event loop, to the end; raises what went wrong."""
        timer = self._timer()
        try:
            if self._program.is_async:
                returned = await self._body_on_loop()
            else:
                body = loops.spawn(self._body_in_thread, f"sapwood-{self._program.name}")
                returned = await asyncio.wrap_future(body)
            failure = await self.run.drained()
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            timer()
        return self._ended(returned, failure)

    def quietly(self) -> None:
        """``to_end``; what went wrong is for the state's readers."""
        try:
            self.to_end()
        except BaseException as error:
            self.fail(error)

    async def aquietly(self) -> None:
        """``ato_end``; what went wrong is for the state's readers."""
        try:
            await self.ato_end()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Ends the run: its requests are cancelled, its readers get the error."""
        if not self.run.over:
            self.run.cancel(error)
            self.run.end()
        self.state.finish(self.run.fail(error))

    def _ended(self, returned: R, failure: Failure | None) -> Outcome[R]:
        failure = failure or self.run.failure
        if failure is not None:
            self.run.fail(failure.error)
        self.run.end()
        self.state.finish(returned if failure is None else failure)
        if failure is not None:
            failure.deliver()
        return self.state

    def _body_in_thread(self) -> R:
        if self._program.is_async:
            running = asyncio.run_coroutine_threadsafe(self._body_on_loop(), self.run.loop)
            try:
                return running.result()
            except BaseException:
                running.cancel()
                raise
        token = INSIDE.set(self.run)
        try:
            returned: R = self._program.body(self.state, *self._args, **self._arguments)
        finally:
            INSIDE.reset(token)
        return returned

    async def _body_on_loop(self) -> R:
        token = INSIDE.set(self.run)
        try:
            returned: R = await self._program.body(self.state, *self._args, **self._arguments)
        finally:
            INSIDE.reset(token)
        return returned

    def _timer(self) -> Callable[[], None]:
        """Starts the clock; the result stops it."""
        if self._timeout is None:
            return _nothing
        seconds = float(self._timeout)
        error = TimeoutError(f"the program {self._program.name} took more than {seconds:g} s")
        loop = self.run.loop
        box: list[asyncio.TimerHandle] = []
        self.run.post(lambda: box.append(loop.call_later(seconds, self.run.cancel, error)))
        return lambda: self.run.post(_cancel, box)


def _runtime(backend: Any, around: Run | None) -> Runtime:
    if around is not None and (backend is None or around.recording != "nothing"):
        return around.runtime
    return DEFAULT.resolve(backend)


def _cancel(timers: list[asyncio.TimerHandle]) -> None:
    for timer in timers:
        timer.cancel()


def _nothing() -> None:
    """For a run without a clock."""


@overload
def function(  # type: ignore[overload-overlap]
    func: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Program[P, R]: ...
@overload
def function(func: Callable[Concatenate[Any, P], R]) -> Program[P, R]: ...
@overload
def function(  # type: ignore[overload-cannot-match]  # mypy's Concatenate takes no **options
    func: Callable[..., Coroutine[Any, Any, R]],
) -> Program[..., R]: ...
@overload
def function(func: Callable[..., R]) -> Program[..., R]: ...  # type: ignore[overload-cannot-match]
@overload
def function(
    *, num_api_spec_tokens: int | None = None
) -> Callable[[Callable[Concatenate[Any, P], R]], Program[P, R]]: ...
def function(func: Body | None = None, num_api_spec_tokens: int | None = None) -> Any:
    """Makes a program of a function whose first parameter is named ``s``."""
    if num_api_spec_tokens is not None:
        raise ValueError("num_api_spec_tokens is not supported: each gen is a request of its own")
    return function if func is None else Program(func)
