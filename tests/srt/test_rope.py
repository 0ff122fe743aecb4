"""Tables of rotary embedding against those of ``transformers``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from sapwood.srt.checkpoint.rope import rope_config
from sapwood.srt.model_config import RopeConfig
from sapwood.srt.models.rope import attention_scale, inverse_frequencies, rope_tables

HEAD = 64
MAX_POSITIONS = 4096
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
BLOCKS: dict[str, dict[str, Any]] = {
    "plain": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3,
    "llama3-narrow": {**LLAMA3, "factor": 32.0, "low_freq_factor": 0.5, "high_freq_factor": 1.5},
    "yarn": YARN,
    "yarn-untruncated": {**YARN, "truncate": False},
    "yarn-betas": {**YARN, "beta_fast": 20.0, "beta_slow": 2.0},
    "yarn-attention-factor": {**YARN, "attention_factor": 0.75},
    "yarn-mscales": {**YARN, "mscale": 0.8, "mscale_all_dim": 0.3},
    "yarn-one-mscale": {**YARN, "mscale": 0.8},
}


def _theirs(block: dict[str, Any]) -> Any:
    config = transformers.LlamaConfig(
        head_dim=HEAD, max_position_embeddings=MAX_POSITIONS, rope_parameters=block
    )
    return LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("kind", BLOCKS)
def test_tables_agree_c092(kind: str, theta: float) -> None:
    """C092: at the first position, at 100 and at the last that the model supports."""
    block = {**BLOCKS[kind], "rope_theta": theta}
    rope, limit = rope_config({"rope_parameters": dict(block)}, MAX_POSITIONS)
    assert limit == MAX_POSITIONS
    theirs = _theirs(block)
    assert attention_scale(rope) == pytest.approx(theirs.attention_scaling, rel=1e-6)
    inverse = inverse_frequencies(rope, HEAD)
    torch.testing.assert_close(inverse.float(), theirs.inv_freq, atol=0, rtol=1e-6)

    at = torch.tensor([0, 100, limit - 1])
    cos, sin = rope_tables(rope, HEAD, limit)
    assert cos.shape == sin.shape == (limit, HEAD // 2)
    assert cos.dtype == sin.dtype == torch.float32
    want_cos, want_sin = theirs(torch.empty(1, dtype=torch.float32), at[None])
    for position, *pairs in zip(
        at.tolist(), cos[at], sin[at], want_cos[0], want_sin[0], strict=True
    ):
        rounding = 1e-6 + position * 2.0**-22  # theirs are angles in float32
        for ours, want in zip(pairs[:2], pairs[2:], strict=True):
            torch.testing.assert_close(ours, want[: HEAD // 2], atol=rounding, rtol=0)


def test_kinds_differ() -> None:
    """What the comparison above could not show if all tables were alike."""
    tables = {}
    for kind, block in BLOCKS.items():
        rope, _ = rope_config({"rope_parameters": {**block, "rope_theta": 1e4}}, MAX_POSITIONS)
        tables[kind] = rope_tables(rope, HEAD, 200)[0]
    assert torch.equal(tables["yarn"], tables.pop("yarn-one-mscale")), "one alone has no effect"
    kinds = list(tables)
    for index, one in enumerate(kinds):
        for other in kinds[index + 1 :]:
            assert not torch.allclose(tables[one], tables[other], atol=1e-3), (one, other)


def test_factors_of_frequencies_are_llama3() -> None:
    """GGUF files state the llama3 scaling as one divisor for each pair."""
    rope, _ = rope_config({"rope_parameters": {**LLAMA3, "rope_theta": 5e5}}, MAX_POSITIONS)
    plain = inverse_frequencies(RopeConfig(theta=5e5), HEAD)
    factors = (plain / inverse_frequencies(rope, HEAD)).float()
    assert factors.min() == 1
    assert factors.max() == pytest.approx(8.0)
    stored = RopeConfig(theta=5e5, freq_factors=tuple(factors.tolist()))
    for ours, want in zip(
        rope_tables(stored, HEAD, 300), rope_tables(rope, HEAD, 300), strict=True
    ):
        torch.testing.assert_close(ours, want, atol=1e-4, rtol=0)
