"""The scheduler over a real (tiny, random) model: what is generated does not depend on company."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from sapwood.radix import RadixTree
from sapwood.srt.attention.select import select
from sapwood.srt.checkpoint import open_checkpoint
from sapwood.srt.config import SchedulerConfig
from sapwood.srt.core import Core
from sapwood.srt.memory import PageAllocator, PrefixCache
from sapwood.srt.memory.pool import KVPool
from sapwood.srt.messages import Abort, Submit, TokenLogprobs, Tokens
from sapwood.srt.models import Decoder, load_weights
from sapwood.srt.params import SamplingParams
from sapwood.srt.runner import ModelRunner
from sapwood.srt.scheduler import Scheduler
from tests.fakes.stand import TEXT, VOCAB

CPU = torch.device("cpu")
CONTEXT = 128
MakeRunner = Callable[[int, int, str], ModelRunner]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The model is too small for more to be of use."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_runner(write_hf: Callable[..., Path]) -> MakeRunner:
    """Runners over one tiny model in float32: pages, page size, attention."""
    checkpoint = open_checkpoint(write_hf())
    config = checkpoint.config

    def make(pages: int, page_size: int, attention: str) -> ModelRunner:
        pool = KVPool(
            pages, page_size, config.n_layers, config.n_kv_heads, config.head_dim, torch.float32
        )
        pool.poison(torch.arange(pool.n_slots))  # a read of what nobody wrote shows
        chosen = select(attention, CPU, pool, n_heads=config.n_heads)
        weights = load_weights(checkpoint.weights(), config, torch.float32, CPU)
        model = Decoder(config, weights, chosen.ops, chosen.backend, CONTEXT)
        return ModelRunner(model, pool, chosen.backend, VOCAB)

    return make


class Results:
    """Tokens and prompt scores of each sample."""

    def __init__(self) -> None:
        self.ids: dict[tuple[str, int], list[int]] = {}
        self.ends: dict[tuple[str, int], str] = {}
        self.scores: dict[tuple[str, int], list[TokenLogprobs]] = {}


def run(
    runner: ModelRunner, submits: list[Submit], aborts: dict[int, str], **config: int
) -> tuple[Results, Scheduler]:
    """Submits one request a step."""
    cache = PrefixCache(RadixTree(runner.pool.page_size), PageAllocator(runner.pool.n_pages))
    scheduler = Scheduler(
        SchedulerConfig(**config), cache, context_length=CONTEXT, eos_ids={0}, text=TEXT
    )
    core, results, waiting, step = Core(scheduler, runner), Results(), submits[::-1], 0
    while waiting or core.busy:
        if waiting:
            core.handle(waiting.pop())
        if step in aborts:
            core.handle(Abort(aborts[step]))
        for message in core.step():
            for item in message.items if isinstance(message, Tokens) else ():
                key = (item.rid, item.choice)
                results.ids.setdefault(key, []).extend(item.ids)
                if item.prompt_logprobs is not None:
                    results.scores[key] = item.prompt_logprobs
                if item.finish is not None:
                    results.ends[key] = item.finish.reason
        scheduler.audit()
        step += 1
    return results, scheduler


def load(seed: int) -> list[Submit]:
    """Requests that share prefixes; some score their prompts, some have two choices."""
    draw = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(1, VOCAB) for _ in range(count)]

    headers = [tokens(50), tokens(40)]
    submits = []
    for number in range(12):
        prompt = [*draw.choice(headers)[: draw.choice([20, 37, 50])], *tokens(draw.randint(1, 12))]
        params = SamplingParams(
            max_tokens=draw.randint(1, 20),
            temperature=draw.choice([0.0, 0.0, 1.0]),
            ignore_eos=True,
            prompt_logprobs_from=draw.choice([None, None, 0, 15]),
        )
        for choice in range(draw.choice([1, 2])):
            submits.append(
                Submit(rid=f"r{number}", choice=choice, prompt_ids=prompt, params=params, seed=seed)
            )
    return submits


@pytest.mark.parametrize("attention", ["reference", "cpu"])
@pytest.mark.parametrize(("page_size", "pages", "budget"), [(1, 144, 16), (4, 36, 7), (8, 18, 40)])
def test_tokens_are_those_of_a_request_run_alone(
    make_runner: MakeRunner, attention: str, page_size: int, pages: int, budget: int
) -> None:
    """C045, C047, C052: chunks, shared prefixes, push-backs and aborts change nothing."""
    submits = load(seed=page_size)
    runner = make_runner(pages, page_size, attention)
    config = {"max_running": 6, "max_batched_tokens": budget, "reserve_tokens": 1}
    together, scheduler = run(runner, submits, {9: "r2"}, **config)
    stats = scheduler.stats()
    assert stats.pushed_back > 0
    assert stats.evicted_pages > 0
    assert stats.cached_prompt_tokens > 0
    solo = make_runner(128 // page_size, page_size, attention)
    for submit in submits:
        key = (submit.rid, submit.choice)
        alone, _ = run(solo, [submit], {})
        if together.ends[key] == "abort":
            assert submit.rid == "r2"
            assert alone.ids[key][: len(together.ids[key])] == together.ids[key]
            continue
        assert together.ids[key] == alone.ids[key]
        for found, expected in zip(
            together.scores.get(key, []), alone.scores.get(key, []), strict=True
        ):
            assert found.id == expected.id
            assert found.logprob == pytest.approx(expected.logprob, abs=1e-4)
