"""A server over a scripted worker, without sockets and with."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import msgspec
import openai
import pytest

from sapwood.srt.front.app import make_app
from sapwood.srt.front.http_server import make_server
from tests.fakes.scripted_worker import Parts, make_parts

Post = Callable[..., httpx.Response]


@pytest.fixture
def parts() -> Iterator[Parts]:
    made = make_parts()
    yield made
    made.front.close()


def send(parts: Parts, method: str, path: str, **kwargs: Any) -> httpx.Response:
    """One request to the application, without a socket; its whole answer."""

    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(parts.front), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **kwargs)

    return asyncio.run(go())


@pytest.fixture
def post(parts: Parts) -> Post:
    return lambda path, json=None, **kwargs: send(parts, "POST", path, json=json, **kwargs)


def chunks_of(response: httpx.Response) -> list[Any]:
    """The JSON of every event; each frame must be exactly ``data: {json}`` and a blank line, and
    ``[DONE]`` must come last."""
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.text.split("\n\n")
    assert frames[-1] == ""
    assert frames[-2] == "data: [DONE]"
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames[:-1])
    return [msgspec.json.decode(frame[6:]) for frame in frames[:-2]]


class Running(NamedTuple):
    """A server on a real socket, in a thread of its own."""

    parts: Parts
    port: int
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def openai(self, **kwargs: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, **kwargs)

    def call(self, work: Callable[[], Any]) -> Any:
        """Runs a function in the server's thread."""

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts servers; takes the arguments of ``make_parts``."""
    stops: list[Callable[[], None]] = []

    def begin(**kwargs: Any) -> Running:
        parts = make_parts(**kwargs)
        listener = socket.create_server(("127.0.0.1", 0))
        server = make_server(make_app(parts.front), grace=1)
        loop = asyncio.new_event_loop()

        def run() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(server.serve(sockets=[listener]))

        thread = threading.Thread(target=run)

        def stop() -> None:
            server.should_exit = True
            thread.join(10)
            parts.front.close()
            assert not thread.is_alive()

        thread.start()
        stops.append(stop)
        return Running(parts, listener.getsockname()[1], loop)

    yield begin
    for stop in stops:
        stop()


@pytest.fixture
def running(start: Callable[..., Running]) -> Running:
    return start()
