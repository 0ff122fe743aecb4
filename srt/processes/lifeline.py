"""The socket pair between ``launch`` and each child: orders down, state up, and its end is death.

Not for requests: those go over the channels. Each packet is one JSON-encoded struct. When the
parent is gone, however it ended, the child's end reads as closed and the child ends itself.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ..channel import Paths, remove_directory
from ..config import ServerConfig

Role = Literal["worker", "detokenizer", "front"]
PACKET = 2**17
"""Bytes of the longest packet."""
BEAT_SECONDS = 0.5
"""How often a child says how it is."""


class Start(msgspec.Struct, frozen=True, tag="start", kw_only=True):
    """The first packet to a child. ``model`` is the path of the model that the parent found;
    ``listener`` the file descriptor of the listening socket, for the front."""

    role: Role
    config: ServerConfig
    paths: Paths
    model: str
    listener: int | None = None


class Peer(msgspec.Struct, frozen=True, tag="peer"):
    """Another child is ready; ``detail`` is what it said of itself."""

    role: Role
    detail: dict[str, Any]


class Down(msgspec.Struct, frozen=True, tag="down"):
    """Another child is dead, and what it was working on is lost."""

    role: Role
    message: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End in order; after ``grace`` seconds the parent does not wait any longer."""

    grace: float


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The child can do its work."""

    role: Role
    detail: dict[str, Any]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The child ends. ``traceback`` is there where the fault is ours."""

    role: Role
    message: str
    traceback: str | None = None


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The child's process runs; it has been in one piece of work for ``stuck`` seconds."""

    stuck: float


Order = Peer | Down | Stop
ToChild = Start | Peer | Down | Stop
ToParent = Ready | Failed | Beat


class Pulse:
    """When the piece of work began that a child is in; written by one thread, read by another."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: float | None = None

    def begin(self) -> None:
        """A piece of work begins (and the one before is over)."""
        self._since = time.monotonic()

    def end(self) -> None:
        """Nothing to do now."""
        self._since = None

    def stuck(self) -> float:
        """Seconds since the present piece of work began; 0 when idle."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since


class Lifeline:
    """A child's end. From ``start`` on a thread beats, takes orders, and ends the process when the
    parent is gone. Until somebody ``listens``, orders wait, and ``Stop`` ends the process at once.
    """

    def __init__(self, connection: socket.socket, directory: str) -> None:
        self.pulse = Pulse()
        self._connection = connection
        self._directory = directory
        self._decoder: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
        self._lock = threading.Lock()
        self._waiting: list[Order] = []
        self._obey: Callable[[Order], None] | None = None

    def start(self) -> Start:
        """Waits for the parent's first packet, and begins to beat."""
        order = self._receive()
        assert isinstance(order, Start), order
        self.role = order.role
        threading.Thread(target=self._run, name="lifeline", daemon=True).start()
        return order

    def listen(self, obey: Callable[[Order], None]) -> None:
        """Passes orders to a function, in the lifeline's thread; those that have come, now."""
        with self._lock:
            for order in self._waiting:
                obey(order)
            self._obey = obey

    def ready(self, detail: dict[str, Any]) -> None:
        """Tells the parent that work can begin."""
        self._send(Ready(self.role, detail))

    def failed(self, message: str, traceback: str | None = None) -> None:
        """Tells the parent why this process is about to end."""
        limit = PACKET // 4
        tail = None if traceback is None else traceback[-limit:]
        self._send(Failed(self.role, message[:limit], tail))

    def _run(self) -> None:
        beat_at = 0.0
        while True:
            wait = beat_at - time.monotonic()
            if wait <= 0:
                self._send(Beat(self.pulse.stuck()))
                beat_at = time.monotonic() + BEAT_SECONDS
            elif select.select([self._connection], [], [], wait)[0]:
                order = self._receive()
                assert not isinstance(order, Start)
                self._pass_on(order)

    def _pass_on(self, order: Order) -> None:
        with self._lock:
            if self._obey is not None:
                self._obey(order)
            elif isinstance(order, Stop):
                leave(0)
            else:
                self._waiting.append(order)

    def _receive(self) -> ToChild:
        try:
            packet = self._connection.recv(PACKET)
        except OSError:  # a reset: the parent was killed with beats of ours still unread
            packet = b""
        if not packet:
            self._orphaned()
        return self._decoder.decode(packet)

    def _send(self, message: ToParent) -> None:
        try:
            self._connection.send(msgspec.json.encode(message))
        except OSError:
            self._orphaned()

    def _orphaned(self) -> None:
        """The parent is gone and cannot clear up: do it, and end, whatever is going on."""
        remove_directory(self._directory)
        os._exit(1)


def leave(code: int) -> None:
    """Ends the process now: nothing in it is worth the time of an orderly teardown."""
    sys.stderr.flush()
    os._exit(code)
