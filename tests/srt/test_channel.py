"""Channels: what goes in comes out, and junk is dropped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from sapwood.srt import channel
from sapwood.srt.channel import Reading, Receiver, Sender, make_directory, paths_in
from sapwood.srt.messages import Abort, Control, Finish, Submit, ToWorker
from sapwood.srt.params import SamplingParams


class Ends:
    """Both ends of one channel, and strangers who found its path; all closed at the end."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._context: zmq.Context[Any] = zmq.Context(1)
        self._closing = contextlib.ExitStack()

    def receiver(self) -> Receiver[ToWorker]:
        receiver: Receiver[ToWorker] = Receiver(self._context, self.path, ToWorker)
        self._closing.callback(receiver.close)
        return receiver

    def sender(self) -> Sender[ToWorker]:
        sender: Sender[ToWorker] = Sender(self._context, self.path)
        self._closing.callback(sender.close)
        return sender

    def pair(self) -> tuple[Sender[ToWorker], Receiver[ToWorker]]:
        receiver, sender = self.receiver(), self.sender()
        sender.wait_connected(10)
        return sender, receiver

    def stranger(self) -> zmq.Socket[Any]:
        stranger = self._context.socket(zmq.PUSH)
        self._closing.callback(stranger.close)
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.connect(f"ipc://{self.path}")
        return stranger

    def close(self) -> None:
        self._closing.close()
        self._context.term()


@pytest.fixture
def ends() -> Iterator[Ends]:
    directory = make_directory()
    ends = Ends(paths_in(directory).to_worker)
    yield ends
    ends.close()
    channel.remove_directory(directory)
    assert not directory.exists()


def collect(receiver: Receiver[ToWorker], count: int) -> list[ToWorker]:
    found: list[ToWorker] = []
    while len(found) < count:
        messages = receiver.drain(10)
        assert messages
        found += messages
    return found


def test_messages_come_in_order(ends: Ends) -> None:
    sender, receiver = ends.pair()
    params = SamplingParams(max_tokens=3, stop=("a", "b"), logit_bias={5: 1.5})
    sent: list[ToWorker] = [
        Submit(
            rid="r", choice=1, prompt_ids=[1, 2], params=params, seed=2**63, namespace=b"\0\xff"
        ),
        Abort("r"),
        *(Control(number, "info") for number in range(3000)),
    ]
    for message in sent:
        assert sender.send(message)
    assert collect(receiver, len(sent)) == sent
    assert receiver.drain(0) == []


def test_directory_is_private_and_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """C072: only the owner may enter; a long TMPDIR does not break the sockets' paths."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(channel.tempfile, "tempdir", str(deep))
    directory = make_directory()
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert max(map(len, paths_in(directory))) <= channel.MAX_PATH
    channel.remove_directory(directory)


class Bomb:
    """Something that runs code when unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("/tmp/sapwood-bomb",)


JUNK = [
    b"",
    b"\xff" * 40,
    os.urandom(100),
    pickle.dumps(Bomb()),
    msgspec.msgpack.encode({"type": "unknown", "rid": "r"}),
    msgspec.msgpack.encode({"type": "abort", "rid": 5}),
    msgspec.msgpack.encode(Finish("stop")),
    b"\x91" * 100_000,
    b"\x82\xa4type\xa6submit\xaaconstraint" + b"\x81\xa1a" * 100_000,
    b"\x82\xa4type\xa5abort\xa3rid\xa1\xff",
]


def test_junk_is_dropped_and_logged(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    """C072: random bytes, unknown types, pickles and deep nesting run nothing and end nothing."""
    sender, receiver = ends.pair()
    stranger = ends.stranger()
    for frame in JUNK:
        stranger.send(frame)
    stranger.send_multipart([b"many", b"parts"])
    while receiver.dropped < len(JUNK) + 2:
        assert receiver.drain(10) == []
    sender.send(Abort("r"))
    assert collect(receiver, 1) == [Abort("r")]
    assert not Path("/tmp/sapwood-bomb").exists()
    assert "junk dropped" in caplog.text
    assert len(caplog.records) < len(JUNK)  # no line for each


def test_oversized_frames_do_not_get_through(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """C072: whoever sends one is cut off; others are not."""
    monkeypatch.setattr(channel, "MAX_FRAME", 1000)
    sender, receiver = ends.pair()
    stranger = ends.stranger()
    stranger.send(b"x" * 2000)
    with pytest.raises(ValueError, match="at most 1000"):
        sender.send(Abort("r" * 2000))
    sender.send(Abort("r"))
    assert collect(receiver, 1) == [Abort("r")]


def test_nothing_is_sent_to_a_reader_that_is_gone(ends: Ends) -> None:
    sender = ends.sender()
    with pytest.raises(TimeoutError, match="worker"):
        sender.wait_connected(0.05)
    assert not sender.send(Abort("r"))


def test_reading_from_an_event_loop(ends: Ends) -> None:
    """Bursts larger than one drain, junk among them, and what came before reading began."""
    found: list[ToWorker] = []

    async def main() -> None:
        sender, receiver = ends.pair()
        stranger = ends.stranger()
        count = 3 * channel.DRAIN_LIMIT
        for number in range(count):
            sender.send(Control(number, "info"))
        reading = Reading(receiver, found.extend)
        reading.start()
        while len(found) < count:
            await asyncio.sleep(0.01)
        for _ in range(2 * channel.DRAIN_LIMIT):
            stranger.send(b"junk")
        for number in range(50):
            sender.send(Control(count + number, "info"))
            await asyncio.sleep(0)
        while len(found) < count + 50 or receiver.dropped < 2 * channel.DRAIN_LIMIT:
            await asyncio.sleep(0.01)
        reading.stop()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert [message.id for message in found if isinstance(message, Control)] == list(
        range(3 * channel.DRAIN_LIMIT + 50)
    )
