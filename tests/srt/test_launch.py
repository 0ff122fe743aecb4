"""Starting, dying and ending of a server's processes, with small programs in their places.

``tests/e2e`` does the same with the real ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

FAKES = Path(__file__).parent.parent / "fakes" / "processes"
PATIENCE = 20.0
"""Seconds after which a test gives up; nothing here takes long."""


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.02)


class Server:
    """A running server of fakes, and everything that it has started."""

    def __init__(self, tmp: Path, **config: dict[str, object]) -> None:
        self.tmp = tmp
        config = {"front": {"port": 0}, **config}
        env = {**os.environ, "PYTHONPATH": str(FAKES), "TMPDIR": str(tmp)}
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in close()
        self.process = subprocess.Popen(
            [sys.executable, str(FAKES / "serve_fakes.py"), json.dumps(config)],
            env=env,
            stderr=self.log,
            start_new_session=True,
        )
        self.tree: dict[str, psutil.Process] = {}

    def output(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def children(self) -> dict[str, psutil.Process]:
        """The server's processes by role."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    for part in child.cmdline():
                        if part.startswith("fake_"):
                            self.tree[part.removeprefix("fake_")] = child
        return self.tree

    def ready(self) -> Server:
        until(lambda: "serving" in self.output(), f"serving: {self.output()}")
        assert len(self.children()) == 3
        return self

    def spawned(self) -> Server:
        until(lambda: len(self.children()) == 3, "children")
        return self

    def connect(self) -> socket.socket:
        found = re.search(r"url=http://([\d.]+):(\d+)", self.output())
        assert found, self.output()
        return socket.create_connection((found[1], int(found[2])), timeout=PATIENCE)

    def ask(self, line: bytes) -> bytes:
        with self.connect() as client:
            client.sendall(line + b"\n")
            return client.makefile("rb").readline().strip()

    def ended(self) -> int:
        """The exit code, once nothing of the server is left."""
        code = self.process.wait(PATIENCE)
        until(lambda: not any(alive(child) for child in self.tree.values()), "no process")
        until(lambda: not list(self.tmp.iterdir()), f"no files: {list(self.tmp.iterdir())}")
        return code

    def close(self) -> None:
        for process in [*self.children().values(), self.process]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                process.kill()
        self.process.wait()
        self.log.close()


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    with contextlib.ExitStack() as stack:

        def begin(**config: dict[str, object]) -> Server:
            tmp = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sw")))
            server = Server(tmp, **config)
            stack.callback(server.close)
            return server

        yield begin


Start = Callable[..., Server]


def test_goes_around_and_ends_with_sigterm(start: Start) -> None:
    """C060: exit code 0, and nothing is left."""
    server = start().ready()
    assert not list(server.tmp.iterdir())  # the sockets' files are gone once all is connected
    assert server.ask(b"hello") == b"hello"
    assert server.ask("é🌶".encode()) == "é🌶".encode()
    server.process.terminate()
    assert server.ended() == 0


def test_ctrl_c_twice(start: Start) -> None:
    """C060: a terminal's Ctrl-C goes to every process; the second one does no harm."""
    server = start().ready()
    os.killpg(server.process.pid, signal.SIGINT)
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.ended() == 0
    assert "Traceback" not in server.output()


@pytest.mark.parametrize("name", ["slow-load", "any"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_their_parent(start: Start, name: str, number: signal.Signals) -> None:
    """C060: also while the worker loads, and when the parent cannot do anything about it."""
    server = start(model={"served_name": name})
    server.spawned() if name == "slow-load" else server.ready()
    server.process.send_signal(number)
    assert server.ended() == (0 if number == signal.SIGTERM else -number)


def test_kill_of_all_processes_leaves_no_files(start: Start) -> None:
    """C060: with nobody left to clear up."""
    server = start().ready()
    os.killpg(server.process.pid, signal.SIGKILL)
    assert server.ended() == -signal.SIGKILL


@pytest.mark.parametrize("role", ["worker", "detokenizer"])
def test_death_under_load(start: Start, role: str) -> None:
    """C058: the client gets an error, later ones too, and the server exits non-zero."""
    server = start().ready()
    with server.connect() as client, server.connect() as later:
        client.sendall(b"wait\n")
        later.sendall(b"hello\n")
        assert later.makefile("rb").readline() == b"hello\n"
        server.tree[role].kill()
        assert client.makefile("rb").readline().startswith(b"error: the %b is gone" % role.encode())
        later.sendall(b"hello\n")
        assert later.makefile("rb").readline().startswith(b"error")
    assert server.ended() == 1
    assert f'role={role} reason="its process ended with signal 9"' in server.output()


def test_death_of_the_front(start: Start) -> None:
    """C058: clients are cut off, and the server exits non-zero."""
    server = start().ready()
    with server.connect() as client:
        client.sendall(b"wait\n")
        server.tree["front"].kill()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(10) == b""
    assert server.ended() == 1


@pytest.mark.parametrize("role", ["worker", "detokenizer", "front"])
def test_stopped_process_is_killed(start: Start, role: str) -> None:
    """C058: past the limit it counts as dead."""
    server = start(processes={"silent_seconds": 1.5}).ready()
    server.tree[role].suspend()
    assert server.ended() == 1
    assert f'role={role} reason="it gave no sign of life for 1.5 s"' in server.output()


def test_hanging_step_is_killed(start: Start) -> None:
    """C058: its process runs, and its work does not go on."""
    server = start(processes={"step_seconds": 0.7}).ready()
    assert server.ask(b"hang").startswith(b"error: the worker is gone: it has been in one step")
    assert server.ended() == 1


def test_stopping_all_is_no_death(start: Start) -> None:
    """Ctrl-Z and fg: nobody beats, and nobody is to blame."""
    server = start(processes={"silent_seconds": 1.5}).ready()
    everyone = [psutil.Process(server.process.pid), *server.tree.values()]
    for process in everyone:
        process.suspend()
    time.sleep(2.5)
    for process in everyone:
        process.resume()
    assert server.ask(b"hello") == b"hello"
    server.process.terminate()
    assert server.ended() == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("load-error", "sapwood: tensor x is missing"),
        ("bug", "RuntimeError: a fault of ours"),
    ],
)
def test_failure_at_start(start: Start, name: str, message: str) -> None:
    """C060: one line for what the user can mend, a traceback for what he cannot."""
    server = start(model={"served_name": name})
    assert server.ended() == 1
    assert message in server.output()
    assert ("Traceback" in server.output()) == (name == "bug")
    if name == "load-error":
        assert server.output().strip() == message


def test_taken_port(start: Start) -> None:
    """C060: known before anything is started, said in one line."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start(front={"port": port})
        assert server.ended() == 1
        assert server.output().strip().splitlines() == [
            f"sapwood: cannot listen on 127.0.0.1 port {port}: address already in use; "
            f"choose another with --port"
        ]


def test_two_servers_at_once(start: Start) -> None:
    """C060: they share nothing."""
    first, second = start(), start()
    assert first.ready().ask(b"one") == b"one"
    assert second.ready().ask(b"two") == b"two"
    first.process.terminate()
    assert first.ended() == 0
    assert second.ask(b"two") == b"two"
    second.process.terminate()
    assert second.ended() == 0


def test_only_the_http_port_listens(start: Start) -> None:
    """C072: internal sockets are files of the owner, gone by now; no other port is open."""
    server = start(front={"host": "0.0.0.0", "port": 0}).ready()
    listening = [
        connection
        for child in [psutil.Process(server.process.pid), *server.tree.values()]
        for connection in child.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) == 1
    server.process.terminate()
    assert server.ended() == 0
