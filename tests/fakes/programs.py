"""Small programs in place of a server's processes, for tests of launching and dying.

Each is a module that ``python -m sapwood.srt.processes`` can run: see ``module`` below.
"""

from __future__ import annotations

from pathlib import Path

_WORKER = """
import os, signal, sys, time
import zmq
from sapwood.srt.channel import Receiver, Sender
from sapwood.srt.errors import LoadError
from sapwood.srt.messages import Submit, TokenItem, Tokens, StepStats, Finish, ToWorker, Abort

def run(start, lifeline):
    mode = start.config.model.served_name
    if mode == "load-error":
        raise LoadError("tensor x is missing")
    if mode == "bug":
        raise RuntimeError("a fault of ours")
    if mode == "slow-load":
        time.sleep(60)
    context = zmq.Context(1)
    receiver = Receiver(context, start.paths.to_worker, ToWorker)
    sender = Sender(context, start.paths.to_detokenizer)
    sender.wait_connected()
    lifeline.ready({"model": "fake"})
    while True:
        for message in receiver.drain(None):
            if isinstance(message, Abort):
                continue
            lifeline.pulse.begin()
            text = bytes(message.prompt_ids)
            if text == b"hang":
                time.sleep(60)
            if text == b"exit":
                os._exit(7)
            if text == b"wait":
                continue
            item = TokenItem(message.rid, 0, 0, 0, message.prompt_ids, 0, finish=Finish("length"))
            sender.send(Tokens([item], StepStats()))
            lifeline.pulse.end()
"""

_DETOKENIZER = """
import zmq
from sapwood.srt.channel import Receiver, Sender
from sapwood.srt.detokenizer import Detokenizer
from sapwood.srt.messages import ToDetokenizer

def run(start, lifeline):
    context = zmq.Context(1)
    receiver = Receiver(context, start.paths.to_detokenizer, ToDetokenizer)
    sender = Sender(context, start.paths.to_front)
    detokenizer = Detokenizer([bytes([value]) for value in range(256)])
    sender.wait_connected()
    lifeline.ready({})
    while True:
        for message in receiver.drain(None):
            sender.send(detokenizer.feed(message))
"""

_FRONT = '''
"""Echoes lines: what a client sends goes once around all processes."""
import asyncio, socket, sys
import zmq
from sapwood.srt.channel import Reading, Receiver, Sender
from sapwood.srt.messages import Submit, ToFront
from sapwood.srt.params import SamplingParams
from sapwood.srt.processes.lifeline import Down, Stop, leave

def run(start, lifeline):
    asyncio.run(serve(start, lifeline))

async def serve(start, lifeline):
    context = zmq.Context(1)
    receiver = Receiver(context, start.paths.to_front, ToFront)
    sender = Sender(context, start.paths.to_worker)
    sender.wait_connected()
    loop, done, waiting, down = asyncio.get_running_loop(), asyncio.Event(), {}, []
    def take(messages):
        for message in messages:
            for item in message.items:
                waiting.pop(item.rid).set_result(item.text)
    def fail(message):
        down.append(message)
        for future in waiting.values():
            future.set_result("error: " + message)
        waiting.clear()
    def obey(order):
        if isinstance(order, Stop):
            loop.call_soon_threadsafe(done.set)
        elif isinstance(order, Down):
            loop.call_soon_threadsafe(fail, order.message)
    async def client(reader, writer):
        while line := (await reader.readline()).strip():
            rid = str(id(line))
            future = waiting[rid] = loop.create_future()
            if down:
                fail(down[0])
            else:
                sender.send(Submit(rid=rid, choice=0, prompt_ids=list(line), seed=0,
                                   params=SamplingParams(max_tokens=1)))
            writer.write((await future).encode() + b"\\n")
            await writer.drain()
        writer.close()
    Reading(receiver, take).start()
    listener = socket.socket(fileno=start.listener)
    server = await asyncio.start_server(client, sock=listener)
    lifeline.listen(obey)
    lifeline.ready({})
    await done.wait()
    leave(0)
'''


def write(folder: Path) -> dict[str, str]:
    """Writes the programs into a folder (to be put on ``PYTHONPATH``); their names by role."""
    texts = {"worker": _WORKER, "detokenizer": _DETOKENIZER, "front": _FRONT}
    for role, text in texts.items():
        (folder / f"fake_{role}.py").write_text(text)
    return {role: f"fake_{role}" for role in texts}
