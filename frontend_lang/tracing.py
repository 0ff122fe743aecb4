"""``trace``: what a program would send, as a tree, without a model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import loops
from .expressions import Begin, End, Text
from .line import Line
from .operations import Choose, Fork, Gather, Generate, Write
from .run import Run
from .runtime import Answer, Delta, Prompt, Request, Score, ScoreRequest
from .standins import answer, shown

if TYPE_CHECKING:
    from .program import Program


class Unanswering:
    """A runtime for programs that are only looked at: it answers with stand-ins."""

    async def generate(self, request: Request) -> list[Answer]:
        """The variable's name, or the plainest value."""
        text = answer(request)
        return [Answer(text=text) for _ in range(request.sampling.n)]

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """The same."""
        for one in await self.generate(request):
            yield Delta(text=one.text, meta=one.meta)

    async def score(self, request: ScoreRequest) -> list[Score]:
        """The first is the likeliest."""
        count = len(request.continuations)
        return [Score(ids=(at,), logprobs=(float(-at),)) for at in range(count)]

    async def render(self, prompt: Prompt) -> str:
        """Messages in a form of our own."""
        turns = [f"{message.role}: {message.content}\n" for message in prompt.messages]
        return "".join(turns) + prompt.text

    async def flush(self) -> bool:
        """There is nothing."""
        return True


@dataclass(frozen=True, slots=True)
class Node:
    """A line of a trace, and what belongs to it."""

    label: str
    children: list[Node] = field(default_factory=list)

    def lines(self, depth: int = 0) -> Iterator[str]:
        """Indented."""
        yield "  " * depth + self.label
        for child in self.children:
            yield from child.lines(depth + 1)


@dataclass(frozen=True, slots=True)
class Trace:
    """A program's tree. ``error`` is what ended the program early, where something did: a value
    that a stand-in could not be."""

    root: Node
    error: BaseException | None = None

    def __str__(self) -> str:
        end = [] if self.error is None else [f"ended by {self.error!r}"]
        return "\n".join([*self.root.lines(), *end])


def trace(program: Program[..., Any], *args: Any, **given: Any) -> Trace:
    """Runs a program with stand-ins: for arguments that are not given, ``{name}``; for answers of
    ``gen``, ``{name}`` or the plainest value of its type; for ``select``, its first choice.

    What the program does otherwise it does: its own side effects happen.
    """
    from .program import Started
    from .warming import missing

    given.pop("backend", None)
    arguments, _ = program.split(args, given)
    placed = program.arguments(args, arguments)
    arguments = {**missing(program, placed), **arguments}
    loop = loops.BACKGROUND.loop()
    options = {"backend": Unanswering()}
    started: Started[Any] = Started(program, args, arguments, options, loop, "all")
    try:
        started.to_end()
    except Exception as error:
        return Trace(_program(program.name, started.run), error)
    return Trace(_program(program.name, started.run))


def _program(name: str, run: Run) -> Node:
    nested = [_program("a program run by it", inner) for inner in run.nested]
    return Node(name, [*_nodes(run.lines[0]), *nested])


def _nodes(line: Line) -> list[Node]:
    """A line's operations, those inside a role below it."""
    root = Node("")
    open_nodes = [root]
    for operation in line.log or []:
        if isinstance(operation, Write):
            _written(operation, open_nodes)
        else:
            open_nodes[-1].children.extend(_asked(operation))
    return root.children


def _written(operation: Write, open_nodes: list[Node]) -> None:
    match operation.expression:
        case Text(text):
            open_nodes[-1].children.append(Node(repr(shown(text))))
        case Begin(role):
            node = Node(role)
            open_nodes[-1].children.append(node)
            open_nodes.append(node)
        case End():
            if len(open_nodes) > 1:
                open_nodes.pop()


def _asked(operation: Any) -> Iterator[Node]:
    match operation:
        case Generate(expression=expression):
            given = ", ".join(f"{key}={value!r}" for key, value in expression.given.items())
            yield Node(f"gen {expression.name}" + (f" ({given})" if given else ""))
        case Choose(expression=expression):
            yield Node(f"select {expression.name}: " + " | ".join(map(repr, expression.choices)))
        case Fork(children=children):
            branches = [Node(f"branch {at}", _nodes(one)) for at, one in enumerate(children)]
            yield Node(f"fork {len(children)}", branches)
        case Gather():
            yield Node("join")
