"""A child's end when its parent is gone."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import socket, sys, time
from sapwood.srt.processes.lifeline import Lifeline, Pulse
line = Lifeline(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
line.role = "worker"
line._send = lambda message: time.sleep(0.01)  # what it has said is unread; it only listens now
line._connection.send(b"unread")
print("there", flush=True)
line._run()
"""


@pytest.mark.parametrize("unread", [False, True])
def test_c060_a_killed_parent_is_noticed_also_with_beats_unread(
    tmp_path: Path, unread: bool
) -> None:
    """C060: the kernel then reports a reset, not an end of file."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = tmp_path / "sapwood-sockets"
    folder.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(theirs.fileno()), str(folder)],
        pass_fds=[theirs.fileno()],
        stdout=subprocess.PIPE,
    )
    theirs.close()
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        if not unread:
            assert ours.recv(100) == b"unread"
        ours.close()
        assert child.wait(20) == 1
        assert not folder.exists()
    finally:
        child.kill()
        child.communicate()
