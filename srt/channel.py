"""Typed one-way channels between the processes: ZeroMQ PUSH/PULL over ``ipc://``.

A frame is one msgpack-encoded struct of the channel's union. Whatever does not decode as such is
dropped and logged; decoding builds plain values only and runs no code.

The sockets lie in a private directory (owner only). Once all ends are connected nobody needs the
files any more, and ``launch`` removes the directory: nothing stays behind, however a server ends.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import zmq

from .log import Log

T = TypeVar("T")

MAX_FRAME = 256 * 2**20
"""Bytes of the longest frame that is taken or sent."""
MAX_PATH = 100
"""Characters of a socket's path; the kernel takes 107."""
DRAIN_LIMIT = 1024
"""Messages taken in one go, so that a flood cannot keep a loop from its work."""

PREFIX = "sapwood-"


class Paths(NamedTuple):
    """Where the three channels of one server lie."""

    to_worker: str
    to_detokenizer: str
    to_front: str


def make_directory() -> Path:
    """A new private directory (mode 0700) for a server's sockets, with a short path."""
    for root in (tempfile.gettempdir(), "/tmp"):
        if len(root) + len(PREFIX) + 8 + len("/detokenizer") <= MAX_PATH:
            return Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    raise OSError(f"no directory for sockets has a path of less than {MAX_PATH} characters")


def remove_directory(directory: Path | str) -> None:
    """Removes a directory that ``make_directory`` made, and the sockets in it; gone is fine."""
    directory = Path(directory)
    assert directory.name.startswith(PREFIX), directory
    try:
        for entry in directory.iterdir():
            entry.unlink(missing_ok=True)
        directory.rmdir()
    except OSError:
        pass  # another process of the server was quicker


def paths_in(directory: Path | str) -> Paths:
    """The sockets' paths in a server's directory."""
    root = os.fspath(directory)
    return Paths(f"{root}/worker", f"{root}/detokenizer", f"{root}/front")


class Sender(Generic[T]):
    """The writing end. Never blocks: a reader that is alive is never full, one that is dead gets
    nothing more."""

    def __init__(self, context: zmq.Context[Any], path: str) -> None:
        self._log = Log("channel")
        self._encoder = msgspec.msgpack.Encoder()
        self._name = Path(path).name
        self._socket = context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Only to readers that are there: so an end can tell whether it is connected.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 5)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 100)
        self._socket.connect(f"ipc://{path}")

    def wait_connected(self, seconds: float = 60.0) -> None:
        """Waits for the reader's end; ``TimeoutError`` where it does not come."""
        if not self._socket.poll(int(seconds * 1000), zmq.POLLOUT):
            raise TimeoutError(f"nobody reads the channel to the {self._name}")

    def send(self, message: T) -> bool:
        """Queues one message. False (and a log line) where the reader is gone."""
        frame = self._encoder.encode(message)
        if len(frame) > MAX_FRAME:
            raise ValueError(f"a message of {len(frame)} bytes; at most {MAX_FRAME} can be sent")
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            self._log.warning("message not sent: its reader is gone", channel=self._name)
            return False
        return True

    def close(self) -> None:
        """Drops what is still queued."""
        self._socket.close()


class Receiver(Generic[T]):
    """The reading end, bound to its path. ``kind`` is the channel's union of structs."""

    def __init__(self, context: zmq.Context[Any], path: str, kind: Any) -> None:
        if len(path) > MAX_PATH:
            raise ValueError(f"{path} is longer than {MAX_PATH} characters")
        self._log = Log("channel")
        self._name = Path(path).name
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._socket = context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
        self._socket.bind(f"ipc://{path}")
        self.dropped = 0

    @property
    def fd(self) -> int:
        """Readable when there *may* be news, once for each time that the state changes: whoever
        waits on it calls ``drain`` until nothing is ``pending``."""
        return int(self._socket.getsockopt(zmq.FD))

    @property
    def pending(self) -> bool:
        """Whether a frame is there now. Asking re-arms ``fd``."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def drain(self, seconds: float | None = 0.0) -> list[T]:
        """Every message that is there; waits for the first one up to ``seconds`` (None: for ever).

        At most ``DRAIN_LIMIT`` frames are taken. An empty list may also mean that only junk came.
        """
        if seconds != 0.0:
            self._socket.poll(None if seconds is None else max(1, int(seconds * 1000)))
        messages: list[T] = []
        for _ in range(DRAIN_LIMIT):
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._decode(frame, messages)
        return messages

    def _decode(self, frame: bytes, messages: list[T]) -> None:
        try:
            messages.append(self._decoder.decode(frame))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th...: no floods
                self._log.warning(
                    "junk dropped",
                    channel=self._name,
                    bytes=len(frame),
                    error=type(error).__name__,
                    dropped=self.dropped,
                )

    def close(self) -> None:
        """Drops what was not read."""
        self._socket.close()


class Reading(Generic[T]):
    """Reads a channel from an asyncio event loop: each batch of messages goes to a function."""

    def __init__(self, receiver: Receiver[T], take: Callable[[list[T]], None]) -> None:
        self._receiver = receiver
        self._take = take

    def start(self) -> None:
        """Begins to read; called in the loop's thread."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._receiver.fd, self._read)
        self._loop.call_soon(self._read)  # what came before: the descriptor tells of changes only

    def _read(self) -> None:
        messages = self._receiver.drain()
        if messages:
            self._take(messages)
        if self._receiver.pending:  # soon, and not in a loop here: other tasks get their turn
            self._loop.call_soon(self._read)

    def stop(self) -> None:
        """Reads no more."""
        self._loop.remove_reader(self._receiver.fd)
