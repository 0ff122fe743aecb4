"""Scheduler, prefix cache and core on a test stand, with a scripted runner and many checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sapwood.constrain.spec import Constraint
from sapwood.radix import RadixTree
from sapwood.srt.config import SchedulerConfig
from sapwood.srt.core import Core
from sapwood.srt.memory import PageAllocator, PrefixCache
from sapwood.srt.messages import (
    Abort,
    Control,
    ControlReply,
    Finish,
    Opened,
    Refused,
    StepStats,
    Submit,
    TokenItem,
    Tokens,
)
from sapwood.srt.params import SamplingParams
from sapwood.srt.scheduler import Scheduler
from sapwood.srt.stops import TokenText

from .scripted_runner import ScriptedRunner

EOS = 0
VOCAB = 64
TEXT = TokenText([bytes([32 + token]) for token in range(VOCAB)], {EOS})
Key = tuple[str, int]


class TickClock:
    """A clock that moves on by one second at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Result:
    """All that was heard of one sample."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.opened: Opened | None = None
        self.items: list[TokenItem] = []
        self.refused: Refused | None = None

    @property
    def ids(self) -> list[int]:
        return [token for item in self.items for token in item.ids]

    @property
    def finish(self) -> Finish | None:
        return self.items[-1].finish if self.items else None

    @property
    def ended(self) -> bool:
        return self.refused is not None or self.finish is not None

    @property
    def cached(self) -> int:
        return self.items[0].cached


class Stand:
    """Runs submissions, audits pages after each step and checks what every reader relies on."""

    def __init__(
        self,
        *,
        pages: int = 4096,
        page_size: int = 1,
        context: int = 4096,
        script: dict[str, Sequence[int]] | None = None,
        fails: dict[str, int] | None = None,
        eos: frozenset[int] = frozenset({EOS}),
        constraints: Any = None,
        memory: int | None = None,
        clock: Callable[[], float] | None = None,
        **config: Any,
    ) -> None:
        self.cache = PrefixCache(RadixTree(page_size), PageAllocator(pages))
        self.scheduler = Scheduler(
            SchedulerConfig(**config),
            self.cache,
            context_length=context,
            eos_ids=eos,
            text=TEXT,
        )
        self.runner = ScriptedRunner(
            pages, page_size, vocab_size=VOCAB, script=script, fails=fails, memory=memory
        )
        self.budget = SchedulerConfig(**config).max_batched_tokens
        self.core = Core(self.scheduler, self.runner, clock or TickClock(), constraints)
        self.results: dict[Key, Result] = {}
        self.stats = StepStats()
        self.replies: list[ControlReply] = []

    def submit(
        self,
        rid: str,
        prompt: Sequence[int],
        *,
        choices: int = 1,
        seed: int = 1,
        epoch: int = 0,
        namespace: bytes = b"",
        priority: int = 0,
        output_ids: Sequence[int] = (),
        constraint: Constraint | None = None,
        on_budget: Any = "close",
        **params: Any,
    ) -> None:
        """Submits the choices of one request."""
        for choice in range(choices):
            self.results[rid, choice] = Result(epoch)
            self.core.handle(
                Submit(
                    rid=rid,
                    choice=choice,
                    epoch=epoch,
                    prompt_ids=list(prompt),
                    output_ids=list(output_ids),
                    params=SamplingParams(**params),
                    seed=seed + choice,
                    namespace=namespace,
                    priority=priority,
                    constraint=constraint,
                    on_budget=on_budget,
                )
            )

    def abort(self, rid: str) -> None:
        self.core.handle(Abort(rid))

    def control(self, op: Any) -> ControlReply:
        """The answer to an order, which costs no step where nothing runs."""
        self.core.handle(Control(len(self.replies), op))
        self.step()
        return self.replies[-1]

    def step(self) -> None:
        """One step of the core, and all checks."""
        for message in self.core.step():
            self._take(message)
        self.scheduler.audit()
        if self.runner.steps:
            assert self.runner.steps[-1].n_tokens <= self.budget

    def run(self, most: int = 100_000) -> None:
        """Steps until nothing is left to do; each sample has ended once then."""
        for _ in range(most):
            if not self.core.busy:
                break
            self.step()
        assert not self.core.busy, "it does not come to an end"
        assert all(result.ended for result in self.results.values())
        assert self.cache.n_used == 0
        assert self.stats.running == self.stats.waiting == 0

    def generate(self, rid: str, prompt: Sequence[int], **options: Any) -> Result:
        """Runs one request to its end."""
        self.submit(rid, prompt, **options)
        self.run()
        return self.results[rid, 0]

    def _take(self, message: Any) -> None:
        if isinstance(message, Opened):
            result = self.results[message.rid, message.choice]
            assert result.opened is None
            assert not result.items
            result.opened = message
        elif isinstance(message, Refused):
            result = self.results[message.rid, message.choice]
            assert not result.ended
            result.refused = message
        elif isinstance(message, ControlReply):
            self.replies.append(message)
        else:
            self._take_tokens(message)

    def _take_tokens(self, message: Tokens) -> None:
        old, new = self.stats, message.stats
        assert new.pages_used + new.pages_evictable + new.pages_free == new.pages_total
        assert min(new.pages_used, new.pages_evictable, new.pages_free) >= 0
        for name in ("steps", "computed_prompt_tokens", "cached_prompt_tokens", "output_tokens"):
            assert getattr(new, name) >= getattr(old, name)
        self.stats = new
        for item in message.items:
            result = self.results[item.rid, item.choice]
            if item.epoch < result.epoch:
                assert item.finish == Finish("abort")
                continue
            assert not result.ended
            assert result.opened is not None or item.finish == Finish("abort")
            before = len(result.opened.output_ids) if result.opened else 0
            assert item.index == before + len(result.ids)
            assert not result.items or item.cached == result.cached
            result.items.append(item)
