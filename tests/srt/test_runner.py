"""Whole requests through scheduler, runner and a tiny float32 model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from sapwood.srt.batch import Batch, Row
from sapwood.srt.checkpoint import Checkpoint, open_checkpoint
from sapwood.srt.config import CacheConfig, ModelOptions, SchedulerConfig
from sapwood.srt.core import Core
from sapwood.srt.errors import LoadError
from sapwood.srt.messages import Refused, Submit, TokenLogprobs, Tokens
from sapwood.srt.models import load_weights
from sapwood.srt.params import SamplingParams
from sapwood.srt.runner import ModelRunner, pool_pages
from tests.fakes.steps import Stepper, request
from tests.fakes.tiny import write_tiny

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(write_tiny(tmp_path_factory.mktemp("tiny")))


def core_of(checkpoint: Checkpoint, **limits: int) -> Core:
    options = ModelOptions(dtype="float32", device="cpu")
    cache = CacheConfig(kv_tokens=limits.pop("kv_tokens", 2000), page_size=limits.pop("page", 1))
    scheduler = SchedulerConfig(**limits)
    runner = ModelRunner.load(options, cache, scheduler, checkpoint)
    return Core.of(runner, checkpoint, scheduler, 512)


def ids_of(seed: int, n: int) -> list[int]:
    return np.random.default_rng(seed).integers(2, 320, n).tolist()


class Outcome:
    """All that a core says of one sample."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: list[TokenLogprobs] | None = None
        self.cached = 0
        self.reason: str | None = None


def run(
    core: Core, prompts: Sequence[list[int]], params: Sequence[SamplingParams]
) -> list[Outcome]:
    found = {str(i): Outcome() for i in range(len(prompts))}
    for i, (ids, each) in enumerate(zip(prompts, params, strict=True)):
        core.handle(Submit(rid=str(i), choice=0, prompt_ids=ids, params=each, seed=i))
    while core.busy:
        for message in core.step():
            assert not isinstance(message, Refused), message
            for item in message.items if isinstance(message, Tokens) else ():
                one = found[item.rid]
                one.ids += item.ids
                one.logprobs += item.logprobs or []
                one.prompt_logprobs = item.prompt_logprobs or one.prompt_logprobs
                one.cached = item.cached
                one.reason = None if item.finish is None else item.finish.reason
    return list(found.values())


@pytest.mark.parametrize("page", [1, 4])
def test_greedy_tokens_are_the_same_alone_together_and_in_chunks(
    checkpoint: Checkpoint, page: int
) -> None:
    header = ids_of(0, 50)
    prompts = [header + ids_of(i, 5 + 3 * i) for i in range(1, 7)] + [ids_of(9, 1)]
    params = [GREEDY] * len(prompts)
    alone = [run(core_of(checkpoint, page=page), [p], [GREEDY])[0].ids for p in prompts]
    assert all(len(ids) == 12 for ids in alone)
    together = core_of(checkpoint, page=page)
    assert [each.ids for each in run(together, prompts, params)] == alone
    again = run(together, prompts, params)
    assert [each.ids for each in again] == alone
    assert all(each.cached >= 48 for each in again[:-1])
    chunked = core_of(checkpoint, page=page, max_batched_tokens=16, max_running=3)
    assert [each.ids for each in run(chunked, prompts, params)] == alone
    tight = core_of(checkpoint, page=page, kv_tokens=160)
    assert [each.ids for each in run(tight, prompts, params)] == alone
    assert tight.stats().pages_used == 0


def test_prompt_logprobs_are_those_of_the_whole_sequence(checkpoint: Checkpoint) -> None:
    """Whole, in chunks, and with a part of the prompt in the cache (C047)."""
    ids = ids_of(3, 90)
    stepper = Stepper(checkpoint, attention="reference")
    logits = stepper.step([(ids, 0, 90, stepper.pages(90))])[0]
    want = torch.log_softmax(logits.double(), -1)
    for start in (0, 1, 40, 89):
        params = SamplingParams(max_tokens=0, prompt_logprobs_from=start, prompt_logprobs_top=3)
        for chunk in (512, 16):
            core = core_of(checkpoint, max_batched_tokens=chunk)
            for _ in range(2):  # the second time with what is cached
                got = run(core, [ids], [params])[0]
                assert got.reason == "length"
                assert got.prompt_logprobs is not None
                assert [entry.id for entry in got.prompt_logprobs] == ids[start:]
                for place, entry in enumerate(got.prompt_logprobs, start):
                    if place == 0:
                        assert entry.logprob is None
                        continue
                    value = want[place - 1, ids[place]].item()
                    assert entry.logprob == pytest.approx(value, abs=1e-4)
                    best = want[place - 1].topk(3).values.tolist()
                    assert [v for _, v in entry.top] == pytest.approx(best, abs=1e-4)


def test_output_logprobs_go_with_their_tokens(checkpoint: Checkpoint) -> None:
    params = [
        SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logprobs=2),
        SamplingParams(max_tokens=6, ignore_eos=True),
        SamplingParams(max_tokens=6, ignore_eos=True, logprobs=0),
    ]
    prompts = [ids_of(i, 20) for i in range(3)]
    first, second, third = run(core_of(checkpoint), prompts, params)
    assert [entry.id for entry in first.logprobs] == first.ids
    assert all(entry.top[0] == (entry.id, entry.logprob) for entry in first.logprobs)
    assert second.logprobs == []
    assert [(entry.id, entry.top) for entry in third.logprobs] == [(t, []) for t in third.ids]


def test_c096_a_row_without_numbers_fails_alone(checkpoint: Checkpoint) -> None:
    """C096: NaN in the KV of one row, as an overflow would leave it."""
    options = ModelOptions(dtype="float32", device="cpu")
    runner = ModelRunner.load(options, CacheConfig(kv_tokens=200), SchedulerConfig(), checkpoint)
    pages = np.arange(40, dtype=np.int32)
    good = Row(request(ids_of(1, 20)), 0, 20, 19, 0, 0, pages[:20])
    bad = Row(request(ids_of(2, 20)), 0, 20, 19, 0, 0, pages[20:])
    alone = runner.sample(batch := Batch(0, (good,), ()), runner.forward(batch)).ids[0]
    both = Batch(1, (good, bad), ())
    runner.sample(both, runner.forward(both))
    runner.pool.poison(torch.tensor([25]))
    later = Batch(2, (good, bad._replace(start=19)), ())
    sampled = runner.sample(later, runner.forward(later))
    assert sampled.ids == [alone, []]
    assert sampled.errors[0] is None
    assert sampled.errors[1] is not None


def test_c096_a_model_of_no_use_is_refused_at_the_start(
    tmp_path: Path,
) -> None:
    """C096"""
    folder = write_tiny(tmp_path)
    opened = open_checkpoint(folder)
    tensors = {
        k: v.numpy() for k, v in load_weights(opened.weights(), opened.config, torch.float32)
    }
    tensors["model.norm.weight"] = np.full(64, np.nan, np.float32)
    save_file(tensors, folder / "model.safetensors")
    options = ModelOptions(dtype="float32", device="cpu")
    broken = open_checkpoint(folder)
    runner = ModelRunner.load(options, CacheConfig(kv_tokens=64), SchedulerConfig(), broken)
    with pytest.raises(LoadError, match="cannot be served"):
        runner.warm_up()


def test_options_that_cannot_be_had_are_refused(checkpoint: Checkpoint) -> None:
    cache, scheduler = CacheConfig(kv_tokens=64), SchedulerConfig()
    for options, words in (
        (ModelOptions(dtype="float16"), "float16"),
        (ModelOptions(context_length=4096), "4096"),
        (ModelOptions(attention="reference", device="cuda"), "cuda"),
    ):
        if options.device == "cuda" and torch.cuda.is_available():
            continue
        with pytest.raises(LoadError, match=words):
            ModelRunner.load(options, cache, scheduler, checkpoint)


def test_the_pool_is_as_large_as_was_asked_for() -> None:
    assert pool_pages(CacheConfig(kv_tokens=100, page_size=16), 1024) == 6
    assert pool_pages(CacheConfig(kv_memory=1.0, page_size=4), 2**20) == 256
    with pytest.raises(LoadError, match="no page"):
        pool_pages(CacheConfig(kv_tokens=10, page_size=16), 1024)


def test_a_pool_beyond_the_memory_is_refused_with_both_numbers(checkpoint: Checkpoint) -> None:
    with pytest.raises(LoadError, match=r"100000.0 GiB, .* GiB of memory"):
        ModelRunner.load(
            ModelOptions(dtype="float32", device="cpu"),
            CacheConfig(kv_memory=100000.0),
            SchedulerConfig(),
            checkpoint,
        )


def test_an_audit_tells_what_is_wrong(checkpoint: Checkpoint) -> None:
    """C045"""
    core = core_of(checkpoint)
    run(core, [ids_of(1, 20)], [GREEDY])
    assert core.audit() is None
    core._scheduler._cache._allocator.free(np.zeros(1, np.int32))
    assert "owner" in (core.audit() or "")
