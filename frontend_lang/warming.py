"""Computing what the runs of a program have in common before they begin."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from . import loops
from .expressions import Begin, End, Text
from .operations import Write
from .program import Program, Started
from .run import Enough
from .runtime import Prompt, Runtime, Warms
from .standins import constant, standin
from .tracing import Unanswering
from .transcript import Transcript

LEAST = 64
"""Characters below which warming is not worth a request."""


def warm(
    program: Program[..., Any],
    runtime: Runtime,
    arguments: Mapping[str, Any],
    *,
    least: int = LEAST,
) -> str:
    """Computes a program's beginning as far as it is the same whatever the arguments that are not
    given, and returns its text. Only an attempt: what fails is left to the runs themselves."""
    if not isinstance(runtime, Warms):
        return ""
    prompt = constant_beginning(program, arguments)
    text = "".join(m.content for m in prompt.messages) + prompt.text
    if len(text) < least:
        return ""
    warming = asyncio.run_coroutine_threadsafe(_attempt(runtime, prompt), loops.BACKGROUND.loop())
    return text if warming.result() else ""


async def _attempt(runtime: Warms, prompt: Prompt) -> bool:
    try:
        await runtime.warm(prompt)
    except Exception:  # a template that wants a user's turn, a server that is gone: the runs tell
        return False
    return True


def constant_beginning(program: Program[..., Any], arguments: Mapping[str, Any]) -> Prompt:
    """The texts or whole messages before the first ``gen`` and the first unknown argument.

    Runs the program up to there with stand-ins for arguments.
    """
    known = {key: value for key, value in arguments.items() if key in program.argument_names}
    given = {**missing(program, known), **known}
    options = {"backend": Unanswering()}
    loop = loops.BACKGROUND.loop()
    started: Started[Any] = Started(program, (), given, options, loop, "texts")
    # Whatever stand-ins have led to: what was written until then still counts.
    with contextlib.suppress(Enough, Exception):
        started.to_end()
    return _beginning(started.run.lines[0].log or [])


def missing(program: Program[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Stand-ins for the arguments that a program cannot do without."""
    return {
        parameter.name: standin(parameter.name)
        for parameter in program.parameters
        if parameter.name not in given
        and parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def _beginning(log: list[Any]) -> Prompt:
    transcript = Transcript()
    for operation in log:
        if not isinstance(operation, Write) or not _write(transcript, operation.expression):
            break
    if transcript.is_chat:
        return Prompt(messages=tuple(transcript.messages))
    return Prompt(text=transcript.open_text)


def _write(transcript: Transcript, expression: Text | Begin | End) -> bool:
    """Whether all of it is constant."""
    match expression:
        case Text(text):
            head, whole = constant(text)
            transcript.write(head)
            return whole
        case Begin(role, fields):
            transcript.begin(role, fields)
        case End(role):
            transcript.end(role)
    return True
