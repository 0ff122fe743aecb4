"""SGLang's name for a server."""

from __future__ import annotations

from .server import Server

RuntimeEndpoint = Server
