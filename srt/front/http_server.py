"""The uvicorn server that carries the application."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .respond import ABORT_EXTENSION


class DroppableProtocol(HttpToolsProtocol):
    """Lets the application drop a connection whose client takes nothing."""

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
