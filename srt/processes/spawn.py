"""A child as its parent sees it: a process and the other end of its lifeline."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

import sapwood

from .lifeline import PACKET, Role, Start, ToChild, ToParent


class Child:
    """One running child process."""

    def __init__(self, start: Start, program: str, directory: str, env: Mapping[str, str]) -> None:
        """Spawns the process and sends it ``start``. ``program`` is the module that it runs."""
        self.role: Role = start.role
        self._decoder: msgspec.json.Decoder[ToParent] = msgspec.json.Decoder(ToParent)
        self._lifeline, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inherited = [theirs.fileno()]
        if start.listener is not None:
            inherited.append(start.listener)
        command = [sys.executable, "-m", "sapwood.srt.processes"]
        command += [program, str(theirs.fileno()), directory]
        with theirs:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=inherited, env=dict(env)
            )
        self._lifeline.setblocking(False)
        self.tell(start)

    def fileno(self) -> int:
        """The lifeline's descriptor: readable when the child said something, or died."""
        return self._lifeline.fileno()

    def tell(self, order: ToChild) -> None:
        """Sends an order. A child that is dead, or does not read, does not get it."""
        with contextlib.suppress(OSError):  # its death shows when its lifeline is read
            self._lifeline.send(msgspec.json.encode(order))

    def hear(self) -> ToParent | None:
        """The next thing that the child says, to be called when there is one; ``None``: it died."""
        try:
            packet = self._lifeline.recv(PACKET)
        except OSError:
            return None
        return self._decoder.decode(packet) if packet else None

    def kill(self) -> None:
        """Ends the process, whatever it does."""
        self.process.kill()

    def wait(self, seconds: float) -> int | None:
        """Its exit status (negative: the signal that killed it), or ``None`` if it lives on."""
        try:
            return self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Closes the lifeline, which ends the child if it still runs."""
        self._lifeline.close()


def environment(role: Role, threads: int | None) -> dict[str, str]:
    """A child's environment: the worker's numeric libraries get the cores, the others' one each.

    What the user has set in the environment stays, except where ``--threads`` says otherwise.
    """
    env = dict(os.environ)
    # ``-m`` puts the working directory before all others: a file there must not shadow a library.
    env["PYTHONSAFEPATH"] = "1"
    root = str(Path(sapwood.__path__[0]).parent)
    if os.path.abspath(sys.path[0]) == root:  # not installed: run from its checkout
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, env.get("PYTHONPATH", "")]))
    if role == "worker":
        # OpenMP's threads wait for each other some hundred times a step. By default they spin for
        # milliseconds, which stops everything as soon as another process wants one of their cores
        # (a client on the same machine is enough): 6 tokens a second in place of 45.
        env.setdefault("GOMP_SPINCOUNT", "1000")
        if threads is not None:
            env["OMP_NUM_THREADS"] = env["NUMBA_NUM_THREADS"] = str(threads)
    else:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            env.setdefault(name, "1")
    env.setdefault("TOKENIZERS_PARALLELISM", "true")
    return env
