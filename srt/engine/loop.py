"""The engine's thread: drives the core and owns the journal."""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable

from ..core import Core
from ..detokenizer import Detokenizer
from ..errors import RequestError
from ..front.entry import Call, Prepared
from ..front.journal import Journal, OnReply
from ..messages import ControlReply, ToWorker

Order = Callable[[], None]


class Loop:
    """Runs steps in a thread of its own while there is work, and sleeps otherwise.

    Everything about the journal happens in that thread: other threads hand it orders. ``error``
    is what ended the thread, where something did.
    """

    def __init__(self, core: Core, detokenizer: Detokenizer) -> None:
        self._core = core
        self._detokenizer = detokenizer
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self.journal = Journal(self._send)
        self.error: RequestError | None = None
        self._thread = threading.Thread(target=self._run, name="sapwood-engine", daemon=True)
        self._thread.start()
        # A thread that is inside of a kernel when Python ends takes the process down with an abort.
        atexit.register(self.stop)

    def open(self, prepared: Prepared, every_delta: bool, notify: Callable[[], None]) -> Opening:
        """Submits a request; ``notify`` is called from the loop's thread whenever there is news."""
        opening = Opening(notify)

        def order() -> None:
            try:
                call = self.journal.open(prepared, every_delta=every_delta)
                call.listen(notify)
                opening.call = call
            except Exception as error:
                opening.error = error
            notify()

        self.order(order)
        if self.error is not None and opening.call is None:
            opening.error = self.error
            notify()
        return opening

    def order(self, work: Order) -> None:
        """Runs ``work`` in the loop's thread, between two steps; never once that has ended."""
        self._orders.put(work)

    def ask(self, op: str, on_reply: OnReply) -> None:
        """An order that passes a question to the worker's side; a failure is an answer too."""
        try:
            self.journal.ask(op, on_reply)
        except RequestError as error:
            on_reply(ControlReply(0, False, {"message": error.message}))

    def stop(self) -> None:
        """Ends the thread after the step in flight; requests in flight get an error."""
        atexit.unregister(self.stop)
        if self._thread.is_alive():
            self._orders.put(None)
            self._thread.join()

    def _send(self, message: ToWorker) -> None:
        self._core.handle(message)

    def _run(self) -> None:
        try:
            while self._drain():
                for message in self._core.step():
                    reply = self._detokenizer.feed(message)
                    if reply is not None:
                        self.journal.receive(reply)
            self._end("the engine has been shut down")
        except BaseException as error:
            self._end(f"the engine has failed: {error!r}")

    def _end(self, why: str) -> None:
        """Ends whatever is in flight or on its way with an error."""
        # Whoever orders something after this line sees the error itself.
        self.error = RequestError(why, code="engine_ended", status=503)
        self.journal.fail_all(why)
        while not self._orders.empty():
            order = self._orders.get()
            if order is not None:
                order()

    def _drain(self) -> bool:
        """Carries out what was ordered; waits for an order where there is nothing else to do."""
        while True:
            patience = self._core.patience
            try:
                order = self._orders.get(block=patience != 0.0, timeout=patience or None)
            except queue.Empty:
                return True
            if order is None:
                return False
            order()


class Opening:
    """A request on its way into the journal: the loop sets ``call`` or ``error``."""

    __slots__ = ("call", "error", "notify")

    def __init__(self, notify: Callable[[], None]) -> None:
        self.notify = notify
        self.call: Call | None = None
        self.error: BaseException | None = None

    def check(self) -> Call | None:
        """The call, once there is one; raises what went wrong."""
        if self.error is not None:
            raise self.error
        if self.call is not None and self.call.error is not None:
            raise self.call.error
        return self.call

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.error is not None or (self.call is not None and self.call.ended)
