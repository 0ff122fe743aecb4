"""The front's process, in a thread: channels on one side, HTTP on the other, orders from above."""

from __future__ import annotations

import asyncio
import socket
import threading

import httpx
import pytest
import zmq

from sapwood.srt.channel import Receiver, Sender, make_directory, paths_in, remove_directory
from sapwood.srt.front.app import make_app
from sapwood.srt.front.http_server import make_server
from sapwood.srt.front.process import Process
from sapwood.srt.messages import Delta, Deltas, Finish, StepStats, Submit, ToFront, ToWorker
from sapwood.srt.processes.lifeline import Down, Peer, Pulse, Stop
from tests.fakes.scripted_worker import make_parts


class Parent:
    """A lifeline whose other end is the test."""

    def __init__(self) -> None:
        self.pulse = Pulse()
        self.listening = threading.Event()
        self.is_ready = threading.Event()

    def listen(self, obey) -> None:
        self.tell = obey
        self.listening.set()

    def ready(self, detail) -> None:
        self.is_ready.set()


class World:
    """A front's process and the ends of its channels."""

    def __init__(self) -> None:
        self.directory = make_directory()
        paths = paths_in(self.directory)
        self.context = zmq.Context(1)
        self.worker: Receiver[ToWorker] = Receiver(self.context, paths.to_worker, ToWorker)
        receiver: Receiver[ToFront] = Receiver(self.context, paths.to_front, ToFront)
        self.sender: Sender[ToWorker] = Sender(self.context, paths.to_worker)
        self.detokenizer: Sender[ToFront] = Sender(self.context, paths.to_front)
        self.parts = make_parts()
        self.parts.front.ready = False
        self.parts.front.journal._send = self.sender.send
        self.parent = Parent()
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = Process(
            self.parts.front, receiver, make_server(make_app(self.parts.front), grace=1)
        )
        self.thread = threading.Thread(
            target=lambda: asyncio.run(process.serve(listener, self.parent))
        )
        self.thread.start()
        assert self.parent.listening.wait(10)

    def begin(self) -> None:
        self.parent.tell(Peer("worker", {"device": "none"}))
        self.parent.tell(Peer("detokenizer", {}))
        assert self.parent.is_ready.wait(10)

    def close(self) -> None:
        self.parent.tell(Stop(0.0))
        self.thread.join(10)
        self.parts.front.close()
        self.context.destroy(0)
        remove_directory(self.directory)


@pytest.fixture
def world():
    made = World()
    yield made
    made.close()


def ask(world, replies, **fields):
    body = {"prompt": "x", **fields}
    run = lambda: replies.append(httpx.post(f"{world.url}/v1/completions", json=body))  # noqa: E731
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_ready_needs_both_others(world):
    assert httpx.get(f"{world.url}/health").status_code == 200
    world.parent.tell(Peer("worker", {"device": "none"}))
    assert httpx.get(f"{world.url}/ready").status_code == 503
    assert not world.parent.is_ready.is_set()
    world.begin()
    assert httpx.get(f"{world.url}/ready").status_code == 200
    assert httpx.get(f"{world.url}/server_info").json()["worker"] == {"device": "none"}


def test_a_request_goes_around(world):
    world.begin()
    replies = []
    thread = ask(world, replies)
    (submit,) = world.worker.drain(10)
    assert isinstance(submit, Submit)
    for i, text in enumerate("ab"):
        finish = Finish("length") if i else None
        item = Delta(submit.rid, 0, 0, i, [97 + i], text, 0, finish=finish)
        world.detokenizer.send(Deltas([item], StepStats(running=1 - i)))
    thread.join(10)
    assert replies[0].json()["choices"][0]["text"] == "ab"


def test_c058_a_death_is_told(world):
    world.begin()
    replies = []
    thread = ask(world, replies)
    assert world.worker.drain(10)
    world.parent.tell(Down("worker", "the worker process ended with signal 9"))
    thread.join(10)
    assert replies[0].status_code == 503
    assert "signal 9" in replies[0].json()["error"]["message"]
    assert httpx.get(f"{world.url}/health").status_code == 503


def test_stop_ends_what_is_in_flight(world):
    world.begin()
    replies = []
    thread = ask(world, replies)
    assert world.worker.drain(10)
    world.parent.tell(Stop(0.8))
    thread.join(10)
    world.thread.join(10)
    assert replies[0].json()["error"]["code"] == "shutting_down"
    assert not world.thread.is_alive()
