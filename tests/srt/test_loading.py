"""Weights on their way from a file into a decoder."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from sapwood.srt.attention.reference import ReferenceAttention
from sapwood.srt.checkpoint.weights import Weight
from sapwood.srt.errors import LoadError
from sapwood.srt.layers import TorchOps
from sapwood.srt.memory.pool import KVPool
from sapwood.srt.model_config import ModelConfig, RopeConfig, expected_tensors
from sapwood.srt.models import Decoder, load_weights

CONFIG = ModelConfig(
    architecture="qwen3",
    vocab_size=12,
    hidden_size=8,
    intermediate_size=6,
    n_layers=2,
    n_heads=2,
    n_kv_heads=1,
    head_dim=4,
    norm_eps=1e-5,
    max_positions=16,
    rope=RopeConfig(),
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    qk_norm=True,
)


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self) -> bool:
        return True


class Watched(dict[str, Weight]):
    """Weights that note when they are asked for."""

    def __init__(self, weights: dict[str, Weight]) -> None:
        super().__init__(weights)
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> Weight:
        self.asked.append(name)
        return super().__getitem__(name)


def _weights() -> Watched:
    source = np.random.default_rng(1)
    return Watched(
        {
            name: Weight(name, shape, "F32", source.normal(size=shape).astype(np.float32))
            for name, shape in expected_tensors(CONFIG).items()
        }
    )


def _decoder(weights: Iterator[tuple[str, torch.Tensor]]) -> Decoder:
    pool = KVPool(16, 1, CONFIG.n_layers, CONFIG.n_kv_heads, CONFIG.head_dim, torch.float32)
    return Decoder(CONFIG, weights, TorchOps(), ReferenceAttention(pool))


def test_tensors_are_read_one_at_a_time() -> None:
    weights = _weights()
    stream = load_weights(weights, CONFIG, torch.float32)
    assert weights.asked == []
    for count, (name, tensor) in enumerate(stream, 1):
        assert len(weights.asked) == count
        assert tensor.shape == expected_tensors(CONFIG)[name]
    assert weights.asked == list(expected_tensors(CONFIG))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stored", ["F32", "F16", "BF16"])
def test_values_are_kept(stored: str, dtype: torch.dtype) -> None:
    """Whatever holds a value exactly: bfloat16 is not taken through anything narrower."""
    shape = expected_tensors(CONFIG)["model.norm.weight"]
    wanted = torch.tensor([0.0, -0.0, 1.0, -1.5, 2.0**-14, 65280.0, -3.140625, 0.0078125])
    arrays = {
        "F32": wanted.numpy(),
        "F16": wanted.half().numpy(),
        "BF16": wanted.bfloat16().view(torch.uint16).numpy(),
    }
    weights = _weights()
    weights["model.norm.weight"] = Weight("model.norm.weight", shape, stored, arrays[stored])
    loaded = dict(load_weights(weights, CONFIG, dtype))["model.norm.weight"]
    assert loaded.dtype == dtype
    assert torch.equal(loaded.float(), wanted)


def test_a_tensor_is_no_view_of_its_file() -> None:
    """Files are mapped read-only; a product may write into a weight that it takes over."""
    bits = np.full(CONFIG.hidden_size, 0x3F80, np.uint16)
    bits.flags.writeable = False
    weights = _weights()
    weights["model.norm.weight"] = Weight("model.norm.weight", bits.shape, "BF16", bits)
    loaded = dict(load_weights(weights, CONFIG, torch.bfloat16))["model.norm.weight"]
    loaded.zero_()
    assert (bits == 0x3F80).all()


@pytest.mark.parametrize("absent", list(expected_tensors(CONFIG)))
def test_a_tensor_that_does_not_come_is_named_c090(absent: str) -> None:
    """C090: no parameter is left unfilled, and nothing that a checkpoint has is left unused."""
    pairs = list(load_weights(_weights(), CONFIG, torch.float32))
    _decoder(iter(pairs))
    with pytest.raises(LoadError, match=f"{absent} is missing"):
        _decoder(pair for pair in pairs if pair[0] != absent)


@pytest.mark.parametrize("place", [0, -1])
def test_a_tensor_that_nothing_takes_is_named(place: int) -> None:
    pairs = list(load_weights(_weights(), CONFIG, torch.float32))
    pairs.insert(place % (len(pairs) + 1), ("model.layers.0.self_attn.rotary", torch.ones(1)))
    with pytest.raises(LoadError, match=r"takes the tensor model\.layers\.0\.self_attn\.rotary"):
        _decoder(iter(pairs))


def test_progress_is_shown_to_its_end_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(expected_tensors(CONFIG))
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    _decoder(load_weights(_weights(), CONFIG, torch.float32))
    assert f"{count}/{count}" in screen.getvalue()
    assert screen.getvalue().endswith("\n")


def test_progress_is_not_written_into_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    _decoder(load_weights(_weights(), CONFIG, torch.float32))
    assert log.getvalue() == ""
