"""The front's process: the event loop between HTTP and the channels."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop
import zmq

from ..channel import Reading, Receiver, Sender
from ..chat_template import ChatTemplate, template_sources
from ..checkpoint import Checkpoint, open_checkpoint
from ..config import ServerConfig
from ..messages import ToFront, ToWorker
from ..metrics import Metrics
from ..processes.lifeline import BEAT_SECONDS, Down, Lifeline, Order, Peer, Start
from .app import make_app
from .http_server import Server, make_server
from .intake import Intake
from .journal import Journal
from .model_info import ModelInfo
from .state import Front

LAST_WORDS = 0.7
"""Seconds before the end of the grace at which requests still in flight get their error."""
NEEDED = frozenset({"worker", "detokenizer"})


def run(start: Start, lifeline: Lifeline) -> None:
    """Serves until told to stop."""
    context = zmq.Context(1)
    receiver: Receiver[ToFront] = Receiver(context, start.paths.to_front, ToFront)
    sender: Sender[ToWorker] = Sender(context, start.paths.to_worker)
    front = make_front(start.config, open_checkpoint(Path(start.model)), sender)
    sender.wait_connected()
    assert start.listener is not None, "launch passes the listening socket"
    listener = socket.socket(fileno=start.listener)
    gc.freeze()
    process = Process(front, receiver, make_server(make_app(front)))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(process.serve(listener, lifeline))
    front.close()


def make_front(config: ServerConfig, checkpoint: Checkpoint, sender: Sender[ToWorker]) -> Front:
    """A front that is not ready yet."""
    options = config.model
    model = ModelInfo.of(
        checkpoint,
        created=int(time.time()),
        context_length=options.context_length,
        served_name=options.served_name,
    )
    metrics = Metrics()
    sources = template_sources(checkpoint.chat_templates, options.chat_template)
    intake = Intake(
        model,
        checkpoint.tokenizer,
        ChatTemplate(sources, checkpoint.tokenizer),
        control=config.front.allow_control_tokens,
        tool_format=config.front.tool_format,
    )

    def send(message: ToWorker) -> None:
        sender.send(message)

    info = {"config": msgspec.to_builtins(config)}
    return Front(intake, Journal(send, metrics=metrics), metrics, config.front, info=info)


class Process:
    """Runs a front: what comes over the channel goes to the journal, orders to the front."""

    def __init__(self, front: Front, receiver: Receiver[ToFront], server: Server) -> None:
        self._front = front
        self._reading: Reading[ToFront] = Reading(receiver, self._take)
        self._server = server
        self._peers: set[str] = set()
        self._peers_ready = asyncio.Event()
        self._broken: asyncio.Future[None]

    async def serve(self, listener: socket.socket, lifeline: Lifeline) -> None:
        """Serves HTTP on a listening socket until ``Stop`` comes."""
        loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        self._reading.start()
        serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        lifeline.listen(lambda order: _in_loop(loop, self._obey, order))
        beating = asyncio.create_task(self._beat(lifeline))
        await asyncio.wait({serving, self._broken}, return_when=asyncio.FIRST_COMPLETED)
        if self._broken.done():
            self._broken.result()
        await serving
        beating.cancel()
        self._reading.stop()

    async def _beat(self, lifeline: Lifeline) -> None:
        """Says that the front is ready once it is, and that its event loop goes round."""
        await self._peers_ready.wait()
        lifeline.ready({})
        while True:
            lifeline.pulse.begin()
            await asyncio.sleep(BEAT_SECONDS)

    def _take(self, messages: Sequence[ToFront]) -> None:
        receive = self._front.journal.receive
        try:
            for message in messages:
                receive(message)
        except Exception as error:
            # An event loop would log this and go on, without the messages that are left: their
            # requests would wait for ever. It ends the process instead.
            if not self._broken.done():
                self._broken.set_exception(error)

    def _obey(self, order: Order) -> None:
        front = self._front
        if isinstance(order, Peer):
            self._peers.add(order.role)
            front.info[order.role] = order.detail
            if self._peers >= NEEDED:
                front.ready = front.dead is None
                self._peers_ready.set()
        elif isinstance(order, Down):
            front.fail(order.message)
        else:
            self._server.should_exit = True
            asyncio.get_running_loop().call_later(
                max(0.0, order.grace - LAST_WORDS),
                front.fail,
                "the server is shutting down",
                "shutting_down",
            )


def _in_loop(loop: asyncio.AbstractEventLoop, obey: Any, order: Order) -> None:
    """Passes an order from the lifeline's thread on; one that comes after the end is void."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(obey, order)
