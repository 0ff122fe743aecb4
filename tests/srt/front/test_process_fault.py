"""A fault of ours in the front ends its process: no request waits for ever for what it lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from sapwood.srt.channel import Receiver, Sender, make_directory, paths_in, remove_directory
from sapwood.srt.front.process import Process
from sapwood.srt.messages import ControlReply, ToFront
from sapwood.srt.processes.lifeline import Pulse


def test_a_message_that_cannot_be_taken_ends_the_process() -> None:
    directory = make_directory()
    path = paths_in(directory).to_front
    context: zmq.Context[Any] = zmq.Context(1)
    receiver: Receiver[ToFront] = Receiver(context, path, ToFront)
    sender: Sender[ToFront] = Sender(context, path)

    def receive(message: ToFront) -> None:
        raise IndexError("no such choice")

    async def serve(sockets: Any) -> None:
        sender.send(ControlReply(1, True))
        await asyncio.sleep(60)

    front: Any = SimpleNamespace(journal=SimpleNamespace(receive=receive))
    lifeline: Any = SimpleNamespace(listen=lambda obey: None, pulse=Pulse())
    try:
        sender.wait_connected(10)
        process = Process(front, receiver, SimpleNamespace(serve=serve))  # type: ignore[arg-type]
        listener: Any = None
        with pytest.raises(IndexError, match="no such choice"):
            asyncio.run(process.serve(listener, lifeline))
    finally:
        context.destroy(linger=0)
        remove_directory(directory)
