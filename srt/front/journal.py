"""The truth about every request in flight."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..errors import RequestError
from ..messages import (
    Abort,
    Control,
    ControlReply,
    Delta,
    Deltas,
    Finish,
    Refused,
    StepStats,
    ToFront,
    ToWorker,
)
from ..metrics import Metrics
from .entry import Call, Entry, Prepared, Prompt
from .held import refusal

OnReply = Callable[[ControlReply], None]
ABORTED = "the request was aborted"


class Failure(NamedTuple):
    """Why nothing can be generated any more."""

    message: str
    code: str

    def error(self) -> RequestError:
        """As an answer; a new one each time, since one that is raised twice gathers traces."""
        return RequestError(self.message, code=self.code, status=503)


class Journal:
    """Opens requests, takes in what comes back, and ends each in exactly one way.

    ``send`` passes a message to the worker and must not block. Everything here is called from one
    thread: a server's event loop; without one, whoever drives the worker (call ``receive`` with
    its answers until ``call.ended``), or several threads under the caller's lock. The only thing
    that needs an event loop is ``await call.changed()``.
    """

    def __init__(
        self,
        send: Callable[[ToWorker], None],
        *,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._metrics = metrics if metrics is not None else Metrics()
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._named: dict[tuple[str, str], list[Entry]] = {}
        self._asked: dict[int, OnReply] = {}
        self._control_ids = itertools.count(1)
        self.failure: Failure | None = None
        self.stats = StepStats()

    def __len__(self) -> int:
        """Prompts in flight."""
        return len(self._entries)

    def open(
        self, prepared: Prepared, *, every_delta: bool = True, keeps_aborted: bool = False
    ) -> Call:
        """Submits a request. ``every_delta=False`` wakes the reader at the end alone;
        ``keeps_aborted`` makes an abort an answer and not an error.

        ``RequestError`` 409 for a rid of the user's that is in flight, 503 after a failure.
        """
        self._check_alive()
        self._check_names(prepared)
        call = Call(prepared, self._clock(), every_delta=every_delta, keeps_aborted=keeps_aborted)
        for entry in call.entries:
            self._entries[entry.rid] = entry
            self._name(entry)
        self._metrics.opened(call.prompt_tokens, len(call.choices))
        for entry in call.entries:
            for submit in entry.submits():
                self._send(submit)
        return call

    def receive(self, message: ToFront) -> None:
        """Takes in a message; whatever is about requests long ended, or comes twice, is dropped."""
        if isinstance(message, Deltas):
            self._receive_deltas(message)
        elif isinstance(message, Refused):
            entry = self._entries.get(message.rid)
            if entry is not None and entry.epoch == message.epoch:
                self._end_call(entry.call, _refusal(message, entry.prompt), "refused")
        else:
            on_reply = self._asked.pop(message.id, None)
            if on_reply is not None:
                on_reply(message)

    def cancel(self, call: Call) -> None:
        """Nobody wants the answer: tells the worker and forgets. Without effect after the end."""
        if call.ended:
            return
        call.cancelled = True
        self._drop(call.entries, "cancelled", abort=True)
        call.wake()

    def abort(self, name: str, *, tenant: str = "") -> int:
        """Ends the prompts that a user's rid stands for; returns how many there were."""
        entries = list(self._named.get((tenant, name), ()))
        for entry in entries:
            if entry.call.keeps_aborted:
                self._finish_aborted(entry)
            else:
                self._end_call(entry.call, _aborted(), "abort")
        return len(entries)

    def take_stats(self, stats: StepStats) -> None:
        """Notes the worker's state."""
        self.stats = stats
        self._metrics.step(stats)

    def ask(self, op: str, on_reply: OnReply) -> None:
        """Sends the worker an order; ``on_reply`` is called once, also if the worker dies."""
        self._check_alive()
        number = next(self._control_ids)
        self._asked[number] = on_reply
        self._send(Control(number, "flush_cache" if op == "flush_cache" else "info"))

    def fail_all(self, message: str, *, code: str = "worker_failed") -> None:
        """Nothing can be generated any more: every request in flight ends with an error, and every
        new one is refused. Only the first call counts."""
        if self.failure is not None:
            return
        self.failure = Failure(message, code)
        for call in {id(e.call): e.call for e in self._entries.values()}.values():
            self._end_call(call, self.failure.error(), "error")
        asked, self._asked = self._asked, {}
        for number, on_reply in asked.items():
            on_reply(ControlReply(number, False, {"message": message}))

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise self.failure.error()

    def _receive_deltas(self, message: Deltas) -> None:
        self.take_stats(message.stats)
        now = self._clock()
        calls: dict[int, Call] = {}
        for delta in message.items:
            entry = self._entries.get(delta.rid)
            if entry is None or entry.epoch != delta.epoch:
                continue
            if self._take(entry, delta, now):
                calls[id(entry.call)] = entry.call
        for call in calls.values():
            call.wake()

    def _take(self, entry: Entry, delta: Delta, now: float) -> bool:
        choice = entry.choices[delta.choice]
        try:
            if not choice.add(delta):
                return False
        except ValueError as error:
            failed = RequestError(f"internal error: {error}", status=500)
            self._end_call(entry.call, failed, "error")
            return False
        if delta.ids:
            self._observe(entry, delta, now)
        if delta.finish is not None:
            self._finish(entry, delta.finish, now)
        return True

    def _finish(self, entry: Entry, finish: Finish, now: float) -> None:
        call = entry.call
        call.choice_ended()
        if finish.reason == "error":
            message = finish.message or "the request failed"
            self._end_call(call, RequestError(message, status=500), "error", lost=True)
        elif finish.reason == "abort" and not call.keeps_aborted:
            self._end_call(call, _aborted(), "abort", lost=True)
        elif entry.done:
            self._metrics.finished(now - entry.opened_at, entry.cached)
            self._drop([entry], finish.reason, abort=False)

    def _finish_aborted(self, entry: Entry) -> None:
        for choice in entry.choices:
            if choice.finish is None:
                choice.finish = Finish("abort", None, ABORTED)
                entry.call.choice_ended()
        self._drop([entry], "abort", abort=True)
        entry.call.wake()

    def _observe(self, entry: Entry, delta: Delta, now: float) -> None:
        last = entry.last_at[delta.choice]
        if last is None:
            self._metrics.first_token(now - entry.opened_at)
        else:
            self._metrics.next_tokens(now - last, len(delta.ids))
        entry.last_at[delta.choice] = now

    def _end_call(self, call: Call, error: RequestError, how: str, *, lost: bool = False) -> None:
        """One sample's failure is the whole call's: there is one answer to write it in.

        ``lost``: a sample has just ended without having finished, so the call goes on failing even
        where it was the last.
        """
        if call.ended and not (lost and call.error is None and not call.cancelled):
            return
        call.error = error
        self._drop(call.entries, how, abort=True)
        call.wake()

    def _drop(self, entries: Iterable[Entry], how: str, *, abort: bool) -> None:
        """Forgets those that are still in flight, and sets their names free."""
        for entry in entries:
            if self._entries.pop(entry.rid, None) is None:
                continue
            self._metrics.ended(how)
            for name in entry.names:
                holders = self._named[name]
                holders.remove(entry)
                if not holders:
                    del self._named[name]
            if abort:
                self._send(Abort(entry.rid))

    def _check_names(self, prepared: Prepared) -> None:
        names = [prompt.name for prompt in prepared.prompts if prompt.name is not None]
        for name in dict.fromkeys([*names, *prepared.names]):
            if (prepared.tenant, name) in self._named:
                raise RequestError(
                    f"a request with the rid {name!r} is in flight",
                    param="rid",
                    code="rid_in_use",
                    status=409,
                )

    def _name(self, entry: Entry) -> None:
        prepared = entry.call.prepared
        own = () if entry.prompt.name is None else (entry.prompt.name,)
        for name in dict.fromkeys((*own, *prepared.names)):
            key = (prepared.tenant, name)
            entry.names.append(key)
            self._named.setdefault(key, []).append(entry)


def _aborted() -> RequestError:
    return RequestError(ABORTED, code="request_aborted")


def _refusal(message: Refused, prompt: Prompt) -> RequestError:
    return refusal(message, prompt.held, prompt.budget_at)
