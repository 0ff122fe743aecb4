"""The worker's process: scheduler, prefix cache and model, one for each device."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from .channel import Receiver, Sender
from .checkpoint import open_checkpoint
from .log import Log
from .messages import ToDetokenizer, ToWorker
from .processes.lifeline import Lifeline, Start

AUDIT_SECONDS = 60.0


class IdleAudit:
    """Looks now and then, when there is nothing to do, whether every page has one owner.

    What it finds is a fault of the server's own: it is logged, and ends nobody's request.
    """

    def __init__(self, core: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._core = core
        self._clock = clock
        self._last = clock()
        self._log = Log("worker")

    def tend(self) -> None:
        """Audits if it is time to and the core is idle."""
        if self._core.busy or self._clock() - self._last < AUDIT_SECONDS:
            return
        self._last = self._clock()
        fault = self._core.audit()
        if fault is not None:
            self._log.error("pages are miscounted", reason=fault)


def run(start: Start, lifeline: Lifeline) -> None:
    """Loads the model, generates a token to prove it, and serves steps until the process ends."""
    context = zmq.Context(1)
    receiver: Receiver[ToWorker] = Receiver(context, start.paths.to_worker, ToWorker)
    sender: Sender[ToDetokenizer] = Sender(context, start.paths.to_detokenizer)
    # The heavy imports come after the socket is there, so that the others can connect meanwhile.
    from .core import Core
    from .runner import ModelRunner

    began = time.monotonic()
    config = start.config
    checkpoint = open_checkpoint(Path(start.model))
    runner = ModelRunner.load(config.model, config.cache, config.scheduler, checkpoint)
    context_length = checkpoint.config.context(config.model.context_length)
    core = Core.of(runner, checkpoint, config.scheduler, context_length)
    loaded = time.monotonic()
    runner.warm_up()
    sender.wait_connected()
    gc.collect()
    gc.freeze()
    detail: dict[str, Any] = {
        "model": config.model.served_name or checkpoint.name,
        **runner.describe(),
        "load_seconds": round(loaded - began, 2),
        "warm_up_seconds": round(time.monotonic() - loaded, 2),
    }
    lifeline.ready(detail)
    core.prepare()
    serve(core, receiver, sender, lifeline)


def serve(
    core: Any,
    receiver: Receiver[ToWorker],
    sender: Sender[ToDetokenizer],
    lifeline: Lifeline,
) -> None:
    """Steps while there is work, and sleeps in ``poll`` while there is none. Does not return."""
    pulse = lifeline.pulse
    audit = IdleAudit(core)
    while True:
        audit.tend()
        messages = receiver.drain(core.patience)
        pulse.begin()
        for message in messages:
            core.handle(message)
        for reply in core.step():
            sender.send(reply)
        pulse.end()
