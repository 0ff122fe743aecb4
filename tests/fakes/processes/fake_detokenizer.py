"""The detokenizer over a vocabulary of bytes, without a model to open."""

from __future__ import annotations

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
