"""The routes that generate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .bodies import ChatBody, CompletionBody, GenerateBody
from .chat_answer import ChatAnswer
from .completion_answer import CompletionAnswer
from .entry import Call, Prepared
from .native_answer import NativeAnswer
from .protocol import decode
from .respond import Answer, Streamed, read_body
from .state import Front

B = TypeVar("B", bound=msgspec.Struct)
Endpoint = Callable[[Request], Awaitable[Response]]


def front_of(request: Request) -> Front:
    """What the routes share."""
    front: Front = request.app.state.front
    return front


async def body_of(request: Request, kind: type[B]) -> B:
    """The request's body, checked."""
    config = front_of(request).config
    return decode(await read_body(request, config.max_body_bytes, config.stall_seconds), kind)


async def chat_completions(request: Request) -> Response:
    """OpenAI's chat completions."""
    front, body = front_of(request), await body_of(request, ChatBody)
    front.check_ready()
    prepared = await front.in_thread(front.intake.chat, body)

    def answer(call: Call) -> Answer:
        return ChatAnswer(call, body, front.intake.model, front.names, int(front.now()))

    return _generated(front, prepared, answer, bool(body.stream))


async def completions(request: Request) -> Response:
    """OpenAI's completions."""
    front, body = front_of(request), await body_of(request, CompletionBody)
    front.check_ready()
    prepared = await front.in_thread(front.intake.completion, body)

    def answer(call: Call) -> Answer:
        return CompletionAnswer(call, body, front.intake.model, front.names, int(front.now()))

    return _generated(front, prepared, answer, bool(body.stream))


async def generate(request: Request) -> Response:
    """SGLang's native route."""
    front, body = front_of(request), await body_of(request, GenerateBody)
    front.check_ready()
    prepared = await front.in_thread(front.intake.generate, body)
    return _generated(
        front,
        prepared,
        lambda call: NativeAnswer(call, body, front.names),
        bool(body.stream),
        keeps_aborted=True,
    )


def _generated(
    front: Front,
    prepared: Prepared,
    answer: Callable[[Call], Answer],
    stream: bool,
    *,
    keeps_aborted: bool = False,
) -> Response:
    call = front.journal.open(prepared, every_delta=stream, keeps_aborted=keeps_aborted)
    return Streamed(
        call,
        answer(call),
        front.journal,
        stream=stream,
        stall_seconds=front.config.stall_seconds,
    )
