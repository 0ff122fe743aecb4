"""Whole models with quantised weights, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from sapwood import Engine, SamplingParams
from sapwood.cli import main
from sapwood.srt.checkpoint import Checkpoint
from sapwood.srt.checkpoint.weights import Weight
from sapwood.srt.config import CacheConfig, ModelOptions, SchedulerConfig
from sapwood.srt.errors import LoadError, UsageError
from sapwood.srt.quant import crossover, quantization
from sapwood.srt.quant.stored import StoredProduct
from sapwood.srt.runner import ModelRunner
from tests.fakes.tiny import write_tiny

CPU = torch.device("cpu")
TEXT = "The river rises in the hills above the town, and runs through it to the sea."
PROMPTS = [
    "The river rises in",
    "Once upon a time there was",
    "To make bread you need",
    "Water boils at",
    "The capital of France is",
    "A prime number is",
    "In the year 1900",
    "My favourite season is",
]
NEAR = 0.1
"""Gap of two log-probabilities that rounding may close: half a unit in the last place of a bfloat16
between 16 and 32, where logits are, is 1/16; both products are off by about that."""


def few_rows(products: list[StoredProduct]) -> tuple[crossover.Limits, bool]:
    return {product.size: 4 for product in products}, True


@pytest.fixture(scope="module")
def engines(default_model_path: Path) -> Iterator[Callable[[str], Engine]]:
    made: dict[str, Engine] = {}

    def get(name: str) -> Engine:
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                # One row and eight get different products, whatever this machine would choose.
                patch.setattr(crossover, "limits", few_rows)
                made[name] = Engine(
                    str(default_model_path), dtype="bfloat16", quantization=name, kv_tokens=4000
                )
        return made[name]

    yield get
    for engine in made.values():
        engine.shutdown()


def perplexity(engine: Engine) -> float:
    (score,) = engine.score("Geography. ", [TEXT])
    return math.exp(-sum(score.logprobs) / len(score.logprobs))


@pytest.mark.parametrize(("name", "ratio"), [("stored", 1.02), ("w8a8", 1.15)])
def test_a_quantised_model_is_nearly_the_model(
    engines: Callable[[str], Engine], name: str, ratio: float
) -> None:
    """Blocks as they are stored lose nothing but rounding; 8 bits a little."""
    base, other = perplexity(engines("none")), perplexity(engines(name))
    assert other != base, "something is computed differently"
    assert 1 / ratio < other / base < ratio


@pytest.mark.parametrize("name", ["stored", "w8a8"])
def test_greedy_text_alone_is_that_in_a_batch_but_for_near_ties(
    engines: Callable[[str], Engine], name: str
) -> None:
    engine = engines(name)
    params = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True, logprobs=2)
    together = engine.generate(PROMPTS, params)
    same = 0
    for prompt, one in zip(PROMPTS, together, strict=True):
        alone = engine.generate(prompt, params)
        pairs = zip(alone.ids, one.ids, strict=True)
        differing = [index for index, (a, b) in enumerate(pairs) if a != b]
        same += not differing
        for first in differing[:1]:
            assert alone.logprobs is not None
            (_, best), (_, second) = alone.logprobs[first].top
            assert best - second < NEAR, (prompt, first)
    assert same >= len(PROMPTS) // 2


def test_what_runs_is_told(default_checkpoint: Checkpoint) -> None:
    options = ModelOptions(dtype="bfloat16", quantization="stored")
    cache = CacheConfig(kv_tokens=100)
    told = ModelRunner.load(options, cache, SchedulerConfig(), default_checkpoint).describe()
    assert told["quantization"] == "stored"
    assert set(told["int4_rows"]) == {"576x576", "576x1536", "960x576", "3072x576"}
    assert (told["int4_layers"], told["bfloat16_layers"]) == (120, 0)


def test_8_bits_of_any_checkpoint(tmp_path: Path) -> None:
    folder = str(write_tiny(tmp_path))
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    with Engine(folder, dtype="bfloat16", quantization="w8a8", kv_tokens=500) as engine:
        assert len(engine.generate("hello", params).ids) == 8
        assert (
            engine.generate(["hello", "x"], params)[0].ids == engine.generate("hello", params).ids
        )


def stored(kind: str) -> dict[str, Weight]:
    return {"w": Weight("w", (16, 32), kind, np.zeros((16, 32), np.float32))}


@pytest.mark.parametrize("name", ["stored", "w8a8"])
def test_devices_and_types_that_do_not_suit_are_named(name: str) -> None:
    weights = stored("Q4_0")
    with pytest.raises(LoadError, match=f"'{name}' runs on a CPU, not on cuda"):
        quantization(name, torch.device("cuda"), torch.bfloat16, weights)
    with pytest.raises(LoadError, match=f"'{name}' needs the dtype bfloat16.*float32"):
        quantization(name, CPU, torch.float32, weights)


def test_a_checkpoint_without_4_bit_blocks_is_named() -> None:
    with pytest.raises(LoadError, match=r"Q4_0 or Q4_1 blocks of a GGUF file.* has Q6_K"):
        quantization("stored", CPU, torch.bfloat16, stored("Q6_K"))
    with pytest.raises(LoadError, match="one of none, stored, w8a8"):
        quantization("int3", CPU, torch.bfloat16, stored("Q4_0"))


def test_bad_combinations_are_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_tiny(tmp_path))
    with pytest.raises(LoadError, match="this checkpoint has F32"):
        Engine(folder, dtype="bfloat16", quantization="stored")
    with pytest.raises(LoadError, match="needs the attention backend 'cpu'"):
        Engine(folder, dtype="bfloat16", quantization="w8a8", attention="reference")
    with pytest.raises(UsageError, match="--quantization is 'int3'"):
        Engine(folder, quantization="int3")
    given = ["--model", folder, "--dtype", "float32", "--quantization", "w8a8"]
    assert main(["generate", "x", *given]) == 1
    assert "needs the dtype bfloat16" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["serve", folder, "--quantization", "int3"])
    assert "none" in capsys.readouterr().err
