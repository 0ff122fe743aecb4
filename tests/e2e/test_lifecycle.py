"""How a server starts, ends and dies: real processes and a tiny model."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

Start = Callable[..., Any]
SMALL = ("--port", "0", "--kv-tokens", "20000", "--threads", "1")


def test_clients_that_go_away_free_their_pages(start: Start, tiny_model: str) -> None:
    """C057: before the first token, after the third, while queued, and with several samples."""
    server = start(tiny_model, *SMALL, "--max-running", "2").ready()
    streams = [server.start_stream(prompt=text) for text in ("one", "two")]
    queued = server.connect()
    queued.request("POST", "/v1/completions", '{"prompt": "three", "max_tokens": 4000, "n": 4}')
    whole = server.connect()
    whole.request("POST", "/v1/completions", '{"prompt": "four", "max_tokens": 4000}')
    server.until(lambda: server.metric("sapwood_waiting_requests") == 5, "queued")
    for connection in (queued, whole, *streams):
        _hang_up(connection)
    server.until(lambda: server.metric("sapwood_running_requests") == 0, "none running")
    assert server.metric("sapwood_waiting_requests") == 0
    assert server.metric("sapwood_kv_pages_used") == 0
    assert server.metric("sapwood_output_tokens_total") < 7 * 4000
    status, reply = server.request("POST", "/v1/completions", {"prompt": "five", "max_tokens": 3})
    assert (status, reply["usage"]["completion_tokens"]) == (200, 3)
    assert "Traceback" not in server.output


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """Closes at once, whatever is still unread."""
    reading = getattr(connection, "reading", None)
    if reading is not None:
        reading.close()
    connection.close()


@pytest.mark.parametrize("role", ["worker", "detokenizer"])
def test_death_under_load(start: Start, tiny_model: str, role: str) -> None:
    """C058: waiting clients get an error, health says so, and the server exits non-zero."""
    server = start(tiny_model, *SMALL).ready()
    assert server.request("GET", "/health")[0] == 200
    probe = server.connect()
    probe.connect()
    stream = server.start_stream()
    whole = server.connect()
    whole.request("POST", "/v1/completions", '{"prompt": "y", "max_tokens": 4000}')
    server.until(lambda: server.metric("sapwood_running_requests") == 2, "running")
    server.tree[role].kill()
    assert b'"error"' in stream.reading.read()
    assert whole.getresponse().status == 503
    probe.request("GET", "/health")
    assert probe.getresponse().status == 503
    for connection in (stream, whole, probe):
        _hang_up(connection)
    assert server.ended() == 1
    assert f'role={role} reason="its process ended with signal 9"' in server.output


def test_stopped_worker_is_dead_past_its_limit(start: Start, tiny_model: str) -> None:
    """C058: no probe is fooled by a process that exists and does nothing."""
    server = start(tiny_model, *SMALL, "--silent-seconds", "1.5").ready()
    whole = server.connect()
    server.tree["worker"].suspend()
    whole.request("POST", "/v1/completions", '{"prompt": "y", "max_tokens": 5}')
    response = whole.getresponse()
    assert response.status == 503
    assert b"no sign of life" in response.read()
    whole.close()
    assert server.ended() == 1


def test_two_ctrl_c_with_streams_in_flight(start: Start, tiny_model: str) -> None:
    """C060: exit code 0, no process, no file, no shared memory."""
    shared = set(os.listdir("/dev/shm"))
    server = start(tiny_model, *SMALL).ready()
    stream = server.start_stream()
    os.killpg(server.process.pid, signal.SIGINT)
    os.killpg(server.process.pid, signal.SIGINT)
    with contextlib.suppress(http.client.HTTPException, OSError):
        stream.reading.read()
    _hang_up(stream)
    assert server.ended() == 0
    assert set(os.listdir("/dev/shm")) <= shared
    assert "Traceback" not in server.output


def test_sigterm_tells_clients(start: Start, tiny_model: str) -> None:
    """C060: what cannot be finished in time gets an error, and the server ends with 0."""
    server = start(tiny_model, *SMALL).ready()
    short = server.connect()
    short.request("POST", "/v1/completions", '{"prompt": "y", "max_tokens": 2}')
    stream = server.start_stream(max_tokens=8000)
    server.process.terminate()
    assert short.getresponse().status == 200
    assert b"shutting down" in stream.reading.read()
    _hang_up(short)
    _hang_up(stream)
    assert server.ended() == 0


def test_kill_of_the_parent(start: Start, tiny_model: str) -> None:
    """C060: no child outlives it, not even in the middle of a step."""
    server = start(tiny_model, *SMALL).ready()
    stream = server.start_stream()
    server.process.kill()
    assert server.ended() == -signal.SIGKILL
    _hang_up(stream)


def test_kill_of_the_parent_while_the_worker_loads(start: Start, tiny_model: str) -> None:
    """C060: from the first moment on."""
    server = start(tiny_model, *SMALL)
    server.until(lambda: len(server.children()) == 3, "children")
    server.process.kill()
    assert server.ended() == -signal.SIGKILL


def test_port_in_use_two_servers_and_open_sockets(start: Start, tiny_model: str) -> None:
    """C060, C072: two servers share nothing; beside the HTTP port nothing listens on a network."""
    first = start(tiny_model, *SMALL, "--host", "0.0.0.0")
    second = start(tiny_model, *SMALL)
    first.until(lambda: bool(list(first.folder.iterdir())), "a directory for sockets")
    with contextlib.suppress(FileNotFoundError):  # it goes as soon as all is connected
        assert stat.S_IMODE(next(first.folder.iterdir()).stat().st_mode) == 0o700
    for server in (first.ready(), second.ready()):
        body = {"prompt": "x", "max_tokens": 2}
        assert server.request("POST", "/v1/completions", body)[0] == 200
        processes = [psutil.Process(server.process.pid), *server.tree.values()]
        sockets = [s for process in processes for s in process.net_connections("inet")]
        assert len([s for s in sockets if s.status == psutil.CONN_LISTEN]) == 1
        assert not list(server.folder.iterdir())
    port = second.url.rpartition(":")[2]
    third = start(tiny_model, "--port", port)
    assert third.ended() == 1
    assert third.output == (
        f"sapwood: cannot listen on 127.0.0.1 port {port}: address already in use; "
        f"choose another with --port\n"
    )
    for server in (first, second):
        taken = int(server.url.rpartition(":")[2])
        server.process.terminate()
        assert server.ended() == 0
        with socket.create_server(("127.0.0.1", taken)):
            pass  # the port is free again


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--prot", "1"], 2, "unknown flag --prot; did you mean --port?"),
        (["--port", "70000"], 2, "--port is 70000; it must be 65535 or less"),
        (["/nowhere/model.gguf", "--port", "0"], 1, "/nowhere/model.gguf does not exist"),
        (["--context-length", "9000", "--port", "0"], 1, "the model supports 8192"),
        (["--chat-template", "/nowhere.jinja", "--port", "0"], 1, "/nowhere.jinja"),
    ],
)
def test_clear_lines(tiny_model: str, arguments: list[str], code: int, line: str) -> None:
    """C060: one line and a non-zero exit, no traceback."""
    command = [sys.executable, "-m", "sapwood", "serve", *arguments]
    if "gguf" not in arguments[0] and arguments[0] != "--prot":
        command.insert(4, tiny_model)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert line in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_broken_checkpoint_is_one_line(tiny_model: str, tmp_path: Path) -> None:
    """C060: what is wrong with a model is said by name, before the server is ready."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in Path(tiny_model).iterdir():
        (broken / file.name).symlink_to(file)
    (broken / "model.safetensors").unlink()
    command = [sys.executable, "-m", "sapwood", "serve", str(broken), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
