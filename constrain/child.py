"""A process that works for this one, and can be killed."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import struct
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any


class Child:
    """One process, one request at a time.

    It reads pickled requests on its standard input, ``setup`` first, and answers each on its
    standard output; before either stands its length, in eight bytes. It is killed when this
    object is dropped.
    """

    def __init__(
        self, command: Sequence[str], setup: Any, env: Mapping[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._end = weakref.finalize(self, _ended, self._process)
        self._send(setup)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kills the process."""
        self._end()

    def ask(self, request: Any, deadline: float) -> Any:
        """The answer; ``TimeoutError`` after the deadline, ``EOFError`` if the process died."""
        self._send(request)
        size = struct.unpack("<Q", self._receive(8, deadline))[0]
        return pickle.loads(self._receive(size, deadline))

    def _send(self, value: Any) -> None:
        data = pickle.dumps(value, protocol=5)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(struct.pack("<Q", len(data)) + data)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EOFError from None

    def _receive(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        parts, missing = [], size
        while missing:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([source], [], [], left)[0]:
                raise TimeoutError
            data = os.read(source, min(missing, 1 << 20))
            if not data:
                raise EOFError
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    process.wait()
