"""A front that echoes lines: what a client sends goes once around all processes."""

from __future__ import annotations

import asyncio
import socket

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
                sender.send(
                    Submit(
                        rid=rid,
                        choice=0,
                        prompt_ids=list(line),
                        seed=0,
                        params=SamplingParams(max_tokens=1),
                    )
                )
            writer.write((await future).encode() + b"\n")
            await writer.drain()
        writer.close()

    Reading(receiver, take).start()
    listener = socket.socket(fileno=start.listener)
    server = await asyncio.start_server(client, sock=listener)
    lifeline.listen(obey)
    lifeline.ready({})
    async with server:
        await done.wait()
    leave(0)
