"""The uvicorn server that carries the application."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..errors import RequestError
from .respond import ABORT_EXTENSION, error_reply

MAX_HEAD_BYTES = 64 * 2**10
"""A request's line and headers, as long as they are not complete."""

HEAD_SECONDS = 30.0
"""For a request's line and headers to be complete."""


class DroppableProtocol(HttpToolsProtocol):
    """Lets the application drop a connection whose client takes nothing; bounds headers.

    The parser itself has no limit, and its cost grows with the square of a header's length.
    """

    _head_bytes = 0
    _in_head = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Small writes go out at once: asyncio does not see to it for every listening socket."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Bytes of a client; refuses headers that grow too long or take too long."""
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(f"headers have more than {MAX_HEAD_BYTES} bytes", b"431 Too Large")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def on_headers_complete(self) -> None:
        """A request's headers are there."""
        self._head_is_over()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._head_is_over()
        super().connection_lost(exc)

    def _head_is_over(self) -> None:
        self._in_head, self._head_bytes = False, 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._refuse(f"headers were not complete after {HEAD_SECONDS:g} s", b"408 Timeout")

    def _refuse(self, why: str, status: bytes) -> None:
        body = msgspec.json.encode(error_reply(RequestError(why, status=int(status[:3]))))
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        self.transport.write(head % (status, len(body)) + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        """A request starts."""
        super().on_message_begin()
        self._in_head = True
        self.scope["extensions"] = {ABORT_EXTENSION: {"abort": self.transport.abort}}


class Server(uvicorn.Server):
    """Leaves signals to whoever runs it, and its event loop too."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield


def make_server(app: ASGIApp, *, grace: int = 3) -> Server:
    """A server for ``await server.serve(sockets=[listener])``; ``server.should_exit = True`` ends
    it, with up to ``grace`` seconds for the requests in flight.
    """
    config = uvicorn.Config(
        app,
        http=DroppableProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=grace,
    )
    return Server(config)
