"""``State``: what a program appends to, and reads from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, Self, TypeVar, overload

from . import loops
from .building import role_of
from .expressions import Begin, End, Expression, leaves
from .forks import ForkGroup, Scope
from .line import Line
from .operations import Capture, Fork, Look, Render, awaited, copied, operation
from .run import INSIDE, Run
from .sites import site
from .variables import Failure, Feed, Promise, Variable, of_value, opened

T = TypeVar("T")
R = TypeVar("R")


class State:
    """One text, or one chat, that grows. Writing does not wait; reading does.

    What is read is read as of the place in the program where it is asked for. Errors of requests
    are raised by whoever reads first, and by ``run()`` where nobody does.

    Methods with an ``a`` before their names are for ``async def`` programs, in which reading a
    value that is not there yet would stop the event loop, and is refused.
    """

    def __init__(self, run: Run, line: Line) -> None:
        self._run = run
        self._line = line

    def __iadd__(self, other: Expression | str) -> Self:
        if isinstance(other, Scope):
            raise TypeError("s.system(), s.user() and s.assistant() append themselves, without +=")
        where = site()
        for leaf in leaves(other):
            self._line.put(operation(leaf, self._line, where))
        return self

    # Reading

    def __getitem__(self, name: str | None) -> Any:
        """A variable's value; ``KeyError`` where there is none of this name."""
        return self._wait(self._variable(name).promise)

    get_var = __getitem__

    def get(self, name: str, default: Any = None) -> Any:
        """A variable's value, or ``default`` where there is none of this name."""
        return self[name] if name in self else default  # noqa: SIM401

    def __contains__(self, name: object) -> bool:
        return name in self._line.variables

    def __setitem__(self, name: str, value: Any) -> None:
        self._line.declare(name, of_value(value))

    set_var = __setitem__

    def raw(self, name: str) -> Any:
        """The text of a variable whose value was parsed."""
        variable = self._variable(name)
        self._wait(variable.promise)
        return variable.raw

    @overload
    def parsed(self, name: str) -> Any: ...
    @overload
    def parsed(self, name: str, kind: type[T]) -> T: ...
    def parsed(self, name: str, kind: Any = None) -> Any:
        """A variable's text as a value: by its ``json_schema`` or ``dtype``, or as ``kind``."""
        variable = self._variable(name)
        self._wait(variable.promise)
        return _parsed(name, variable, kind)

    def get_meta_info(self, name: str) -> Any:
        """What is known of a variable's request: token counts, finish reason, logprobs."""
        variable = self._variable(name)
        self._wait(variable.promise)
        return variable.meta

    def text(self) -> str:
        """All text so far, as the model reads it."""
        if self._settled and not loops.is_current(self._run.loop):
            return self._line.run.rendered(self._line.transcript)
        asked = Render(f"text() at {site()}")
        self._line.put(asked)
        return str(self._wait(asked.promise))

    def messages(self) -> list[dict[str, Any]]:
        """All messages so far, in OpenAI's form."""
        if self._settled:
            return _messages(self._line.transcript)
        asked = Look(_messages, f"messages() at {site()}")
        self._line.put(asked)
        return list(self._wait(asked.promise))

    def sync(self) -> None:
        """Waits until all that was written is done."""
        if self._settled:
            return
        asked = Look(_nothing, f"sync() at {site()}")
        self._line.put(asked)
        self._wait(asked.promise)

    def error(self) -> BaseException | None:
        """What went wrong, once all is done; ``None`` if nothing did. Counts as having seen it."""
        if not self._complete:
            self._wait(self._run.ended)
        elif not self._run.over and self._line.failure is None:
            asked = Look(_nothing, f"error() at {site()}")
            self._line.put(asked)
            self._wait(asked.promise, raising=False)
        failure = self._line.failure or self._run.failure
        if failure is None:
            return None
        failure.delivered = True
        return failure.error

    def __repr__(self) -> str:
        """What stands so far; it does not wait."""
        transcript = self._line.transcript
        written: Any = _messages(transcript) if transcript.is_chat else transcript.open_text
        return f"{type(self).__name__}({written!r})"

    # Reading in async programs

    async def aget(self, name: str | None) -> Any:
        """``s[name]`` for async programs."""
        return opened(await awaited((await self._avariable(name)).promise))

    @overload
    async def aparsed(self, name: str) -> Any: ...
    @overload
    async def aparsed(self, name: str, kind: type[T]) -> T: ...
    async def aparsed(self, name: str, kind: Any = None) -> Any:
        """``s.parsed(name, kind)`` for async programs."""
        await self.aget(name)
        return self.parsed(name, kind)

    async def aget_meta_info(self, name: str) -> Any:
        """``s.get_meta_info(name)`` for async programs."""
        await self.aget(name)
        return self._line.variables[name].meta

    async def atext(self) -> str:
        """``s.text()`` for async programs."""
        asked = Render(f"atext() at {site()}")
        self._line.put(asked)
        return str(opened(await awaited(asked.promise)))

    async def amessages(self) -> list[dict[str, Any]]:
        """``s.messages()`` for async programs."""
        asked = Look(_messages, f"amessages() at {site()}")
        self._line.put(asked)
        return list(opened(await awaited(asked.promise)))

    async def adone(self) -> None:
        """``s.sync()`` for async programs."""
        asked = Look(_nothing, f"adone() at {site()}")
        self._line.put(asked)
        opened(await awaited(asked.promise))

    # Streaming

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """Pieces of a variable's text as they come, or of all text. In pieces only where the
        program is run with ``stream=True``; raises at its end what went wrong."""
        if loops.is_current(self._run.loop):
            raise _blocking("text_iter()", "async for piece in s.text_async_iter(...)")
        yield from self._feed(var_name)

    async def text_async_iter(
        self, var_name: str | None = None, return_meta_data: bool = False
    ) -> AsyncIterator[Any]:
        """``text_iter`` for event loops. With ``return_meta_data`` pairs of a piece and what is
        known of its request by then."""
        if var_name is None:
            if return_meta_data:
                raise ValueError("return_meta_data needs the name of a variable")
            async for piece in self._line.feed:
                yield piece
            return
        variable = await self._avariable(var_name)
        async for piece in variable.feed:
            yield (piece, variable.meta) if return_meta_data else piece

    def __aiter__(self) -> AsyncIterator[str]:
        return self.text_async_iter()

    # Branches

    def fork(self, size: int = 1, position_ids_offset: list[int] | None = None) -> ForkGroup:
        """``size`` states that go on from here, each by itself and all at once."""
        if position_ids_offset is not None:
            raise ValueError("position_ids_offset is not supported: positions are the tokens' own")
        if size < 0:
            raise ValueError(f"fork({size}): the number of states must be 0 or more")
        lines = [Line(self._run, None, dict(self._line.variables)) for _ in range(size)]
        where = f"fork({size}) at {site()}"
        start = Look(copied, where)
        self._line.put(start)
        self._line.put(Fork(lines, where))
        return ForkGroup(self._line, start, [State(self._run, line) for line in lines])

    @contextmanager
    def copy(self, position_ids_offset: list[int] | None = None) -> Iterator[State]:
        """A state that goes on from here, for ``with s.copy() as c``. At the end its new variables
        become lists of one in this state, as with ``join``; names that this state has stay."""
        group = self.fork(1, position_ids_offset)
        yield group[0]
        group.gather_unknown(f"copy() at {site()}")

    @contextmanager
    def var_scope(self, name: str) -> Iterator[State]:
        """Makes a variable of the text that is written inside."""
        where = site()
        start = Look(copied, f"var_scope({name!r}) at {where}")
        variable = self._line.declare(name, Variable())
        self._line.put(start)
        yield self
        self._line.put(Capture(start, variable, f"var_scope({name!r}) at {where}"))

    def system(self, expr: Expression | str | None = None) -> AbstractContextManager[State]:
        """Appends a system message; without ``expr``, use it in ``with``."""
        return self._role("system", expr)

    def user(self, expr: Expression | str | None = None) -> AbstractContextManager[State]:
        """Appends a user's message; without ``expr``, use it in ``with``."""
        return self._role("user", expr)

    def assistant(self, expr: Expression | str | None = None) -> AbstractContextManager[State]:
        """Appends the model's message; without ``expr``, use it in ``with``."""
        return self._role("assistant", expr)

    def _role(self, role: str, expr: Expression | str | None) -> AbstractContextManager[State]:
        if expr is not None:
            self += role_of(role, expr)
            return Scope(self)
        return Scope(self, Begin(role), End(role))

    # Finding and waiting

    def _wait(self, promise: Promise, *, raising: bool = True) -> Any:
        if not promise.done() and loops.is_current(self._run.loop):
            raise _blocking("reading", 'await s.aget("x"), s.atext(), s.amessages()')
        got = promise.result()
        return opened(got) if raising else got

    @property
    def _settled(self) -> bool:
        """Whether all is done and well: what stands can be read at once. The event loop that it
        was written on may be gone by then."""
        return self._run.over and self._line.idle and self._line.failure is None

    @property
    def _complete(self) -> bool:
        """Whether a name that is not there will not come: the program itself reads, or it ended."""
        return self._run.over or INSIDE.get() is self._run

    def _variable(self, name: str | None) -> Variable:
        variables = self._line.variables
        if name not in variables and not self._complete:
            for declared in self._line.declared:
                if declared == name:
                    break
        return self._found(name)

    async def _avariable(self, name: str | None) -> Variable:
        if name not in self._line.variables and not self._complete:
            async for declared in self._line.declared:
                if declared == name:
                    break
        return self._found(name)

    def _found(self, name: str | None) -> Variable:
        variable = self._line.variables.get(name)
        if variable is None:
            if self._run.failure is not None:
                self._run.failure.deliver()
            raise KeyError(name)
        return variable

    def _feed(self, var: str | None) -> Feed:
        return self._line.feed if var is None else self._variable(var).feed


class Outcome(State, Generic[R]):
    """The state of a program that was run. It can be read while a streaming program still runs."""

    def __init__(self, run: Run, line: Line) -> None:
        super().__init__(run, line)
        self._returned: Future[Any] = Future()

    @property
    def ret_value(self) -> R:
        """What the program returned; waits for its end, and raises what it raised."""
        returned: R = self._wait(self._returned)
        return returned

    async def aret_value(self) -> R:
        """``ret_value`` for event loops."""
        returned: R = opened(await awaited(self._returned))
        return returned

    def finish(self, value: R | Failure) -> None:
        """Sets what the program returned, or what ended it."""
        if not self._returned.done():
            self._returned.set_result(value)


def _parsed(name: str, variable: Variable, kind: Any) -> Any:
    from .schemas import shape

    parse = variable.parse if kind is None else shape(kind).parse
    if parse is None:
        raise ValueError(f"{name!r} has neither a json_schema nor a dtype; pass a type to parsed()")
    raw = variable.raw
    return [parse(text) for text in raw] if isinstance(raw, list) else parse(raw)


def _messages(transcript: Any) -> list[dict[str, Any]]:
    return [message.as_dict() for message in transcript.whole()]


def _nothing(transcript: Any) -> None:
    return None


def _blocking(what: str, instead: str) -> RuntimeError:
    return RuntimeError(f"{what} would stop the event loop that it waits for; use {instead}")
