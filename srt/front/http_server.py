"""The uvicorn server that carries the application."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .respond import ABORT_EXTENSION


class DroppableProtocol(HttpToolsProtocol):
    """Lets the application drop a connection whose client takes nothing."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Small writes go out at once: asyncio does not see to it for every listening socket."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def on_message_begin(self) -> None:
        """A request starts."""
        super().on_message_begin()
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
