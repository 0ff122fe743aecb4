"""What a worker process and an ``Engine`` both drive: scheduler, runner, and the only clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sapwood.constrain.matcher import MaskRow
from sapwood.radix import RadixTree

from .batch import Batch, Sampled
from .config import SchedulerConfig
from .memory import PageAllocator, PrefixCache
from .messages import (
    Abort,
    Control,
    ControlReply,
    Opened,
    Refused,
    StepStats,
    Submit,
    ToDetokenizer,
    TokenItem,
    Tokens,
    ToWorker,
)
from .scheduler import Events, Scheduler
from .stops import TokenText

if TYPE_CHECKING:
    from .checkpoint import Checkpoint


class Runner(Protocol):
    """Computes steps: a model on a device, or a script in tests."""

    def forward(self, batch: Batch) -> Any:
        """One forward pass over all rows; what it returns is ``sample``'s to read."""
        ...

    def sample(
        self, batch: Batch, logits: Any, masks: list[MaskRow | None] | None = None
    ) -> Sampled:
        """Draws the tokens of the rows that have caught up."""
        ...


class Core:
    """Takes messages, runs steps, and gives back messages. For one thread.

    An exception of the runner passes through ``step``: what it was computing is lost with the
    process, and whoever started that has the requests. A row's own fault ends that row alone.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._clock = clock
        self._replies: list[ToDetokenizer] = []
        self._arrived: dict[tuple[str, int, int], float] = {}

    @classmethod
    def of(
        cls,
        runner: Any,
        checkpoint: Checkpoint,
        config: SchedulerConfig,
        context_length: int,
    ) -> Core:
        """A core over a loaded model: an empty tree over the pages of ``runner.pool``."""
        pool = runner.pool
        cache = PrefixCache(RadixTree(pool.page_size), PageAllocator(pool.n_pages))
        tokenizer = checkpoint.tokenizer
        scheduler = Scheduler(
            config,
            cache,
            context_length=context_length,
            eos_ids=checkpoint.eos_ids,
            text=TokenText(tokenizer.token_bytes, tokenizer.special_ids),
        )
        return cls(scheduler, runner)

    @property
    def busy(self) -> bool:
        """Whether ``step`` has anything to do or to tell."""
        return bool(self._replies) or not self._scheduler.idle

    def handle(self, message: ToWorker) -> None:
        """Takes one message; whatever is to be answered at once comes with the next ``step``."""
        if isinstance(message, Submit):
            self._arrived[message.rid, message.choice, message.epoch] = self._clock()
            self._scheduler.submit(message)
        elif isinstance(message, Abort):
            self._scheduler.abort(message.rid)
        else:
            self._replies.append(self._control(message))
        self._tell(self._scheduler.take_events(), 0.0)

    def step(self) -> list[ToDetokenizer]:
        """Runs one step if there is work, and returns all that is to be told, in order."""
        began = self._clock()
        batch = self._scheduler.next_batch()
        if batch is not None:
            logits = self._runner.forward(batch)
            sampled = self._runner.sample(batch, logits, None)
            events = self._scheduler.commit(batch, sampled)
            self._tell(events, began, stepped=True)
        replies, self._replies = self._replies, []
        return replies

    def audit(self) -> str | None:
        """What is wrong with who owns which page, if anything is; costs milliseconds."""
        try:
            self._scheduler.audit()
        except AssertionError as error:
            return str(error) or "an audit of the pages failed"
        return None

    def stats(self) -> StepStats:
        """The state now."""
        return self._scheduler.stats()

    def _tell(self, events: Events, began: float, stepped: bool = False) -> None:
        """Turns events into messages: samples open before their tokens come."""
        if not events and not stepped:
            return
        queued = [began - self._arrived.pop(_key(each), began) for each in events.opened]
        self._replies += events.opened
        self._replies += events.refused
        for refused in events.refused:
            self._arrived.pop(_key(refused), None)
        for item in events.items:
            if item.finish is not None:  # it may have been aborted before it started
                self._arrived.pop(_key(item), None)
        if events.items or stepped:
            stats = msgspec.structs.replace(
                self._scheduler.stats(),
                step_seconds=self._clock() - began if stepped else 0.0,
                queue_seconds=queued if stepped else [],
            )
            self._replies.append(Tokens(events.items, stats))

    def _control(self, message: Control) -> ControlReply:
        if message.op == "flush_cache":
            if self._scheduler.flush():
                return ControlReply(message.id, True, {})
            stats = self.stats()
            reason = f"{stats.running} requests run and {stats.waiting} wait; nothing was changed"
            return ControlReply(message.id, False, {"message": reason})
        return ControlReply(message.id, True, msgspec.structs.asdict(self.stats()))


def _key(message: Opened | Refused | TokenItem) -> tuple[str, int, int]:
    return (message.rid, message.choice, message.epoch)
