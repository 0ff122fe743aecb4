"""With ``deterministic`` a request's tokens and log-probabilities are its own, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch

from sapwood import Engine, SamplingParams
from sapwood.srt.errors import LoadError, UsageError
from sapwood.srt.kernels.cpu_ops import PackedProducts
from sapwood.srt.kernels.fixed import ROWS, fixed

WORDS = ["river", "stone", "light", "morning", "paper", "engine", "green", "market", "salt"]


@pytest.fixture(scope="module", params=["none", "w8a8"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(
        dtype="bfloat16",
        quantization=request.param,
        deterministic=True,
        kv_tokens=12_000,
        max_batched_tokens=200,
    ) as engine:
        yield engine


def prompts(count: int) -> list[str]:
    """Some that share beginnings, of lengths on both sides of a chunk's and a cut's."""
    rng = random.Random(7)
    shared = " ".join(rng.choices(WORDS, k=270))
    made = []
    for at in range(count):
        own = " ".join(rng.choices(WORDS, k=rng.randint(1, 90)))
        made.append(f"{shared} {own}" if at % 2 else own)
    return made


def test_alone_in_a_crowd_and_after_a_cache_hit(engine: Engine) -> None:
    params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, logprobs=1)

    def told(completions: object) -> list[tuple[list[int], list[float]]]:
        assert isinstance(completions, list)
        return [(one.ids, [entry.logprob for entry in one.logprobs or ()]) for one in completions]

    asked = prompts(10)
    together = told(engine.generate(asked, params))
    again = told(engine.generate(asked, params))
    alone = []
    for prompt in asked:
        engine.flush_cache()
        alone += told([engine.generate(prompt, params)])
    assert together == alone
    assert again == alone
    assert len({tuple(ids) for ids, _ in alone}) > 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_in_any_block(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    weight_OI = torch.randn(96, 160, generator=generator).to(dtype)
    bias_O = torch.randn(96, generator=generator).to(dtype)
    x_TI = torch.randn(3 * ROWS + 5, 160, generator=generator).to(dtype)
    product = fixed(PackedProducts().linear(weight_OI, bias_O))
    whole = product(x_TI)
    assert whole.shape == (len(x_TI), 96)
    torch.testing.assert_close(
        whole.float(), x_TI.float() @ weight_OI.float().T + bias_O.float(), rtol=0.02, atol=0.1
    )
    order = torch.randperm(len(x_TI), generator=generator)
    assert torch.equal(product(x_TI[order]), whole[order])
    assert torch.equal(torch.cat([product(row) for row in x_TI.split(1)]), whole)


def test_plain_torch_cannot() -> None:
    with pytest.raises((LoadError, UsageError), match="deterministic needs"):
        Engine(attention="reference", deterministic=True, kv_tokens=1000)
