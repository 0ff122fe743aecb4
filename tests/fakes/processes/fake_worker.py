"""A worker whose model is an echo; some prompts and names make it fail."""

from __future__ import annotations

import os
import time

import zmq

from sapwood.srt.channel import Receiver, Sender
from sapwood.srt.errors import LoadError
from sapwood.srt.messages import Abort, Finish, StepStats, TokenItem, Tokens, ToWorker


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
