"""C092: RoPE in all its spellings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sapwood.srt.checkpoint.hf_config import hf_config
from sapwood.srt.errors import LoadError
from sapwood.srt.model_config import RopeConfig

YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def _rope(tiny_config: dict[str, Any], **changes: Any) -> tuple[RopeConfig, int]:
    config = hf_config({**tiny_config, **changes})
    return config.rope, config.max_positions


@pytest.mark.parametrize("block", [None, {}, {"rope_type": "default"}, {"type": "default"}])
def test_plain_rope_c092(block: dict[str, Any] | None, tiny_config: dict[str, Any]) -> None:
    plain = RopeConfig(theta=5e5)
    assert _rope(tiny_config, rope_scaling=block, rope_theta=5e5) == (plain, 128)


@pytest.mark.parametrize(
    ("kind", "block", "positions"),
    [("linear", {"factor": 2.0}, 128), ("llama3", LLAMA3, 128), ("yarn", YARN, 256)],
)
def test_rope_spellings_are_equal_c092(
    kind: str, block: dict[str, Any], positions: int, tiny_config: dict[str, Any]
) -> None:
    spellings = (
        {"rope_scaling": {"type": kind, **block}, "rope_theta": 5e5},
        {"rope_scaling": {"rope_type": kind, **block}, "rope_theta": 5e5},
        {"rope_scaling": {"rope_type": kind, "type": kind, **block}, "rope_theta": 5e5},
        {"rope_parameters": {"rope_type": kind, "rope_theta": 5e5, **block}},
        {"rope_parameters": {"rope_type": kind, "rope_theta": 5e5, **block}, "rope_theta": 1.0},
    )
    first, *others = [_rope(tiny_config, **spelling) for spelling in spellings]
    assert all(other == first for other in others)
    rope, limit = first
    assert (rope.kind, rope.factor, rope.theta) == (kind, block["factor"], 5e5)
    assert limit == positions


def test_yarn_details_c092(tiny_config: dict[str, Any]) -> None:
    block = {"type": "yarn", "factor": 4, "attention_factor": 0.9, "beta_fast": 16}
    rope, limit = _rope(tiny_config, rope_scaling={**block, "truncate": False})
    assert (rope.original_positions, limit) == (128, 512), "from max_position_embeddings"
    assert (rope.attention_factor, rope.beta_fast, rope.beta_slow) == (0.9, 16.0, 1.0)
    assert rope.truncate is False
    block = {"type": "yarn", "factor": None, "original_max_position_embeddings": 32}
    rope, limit = _rope(tiny_config, rope_scaling=block)
    assert (rope.factor, limit) == (4.0, 128)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic' is not supported"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "'longrope'"),
        ({"rope_scaling": {"rope_type": "mrope", "mrope_section": [1]}}, "'mrope'"),
        ({"rope_scaling": {"factor": 2.0}}, "factor and no rope_type"),
        ({"rope_scaling": {"type": "linear", "rope_type": "yarn"}}, "two types"),
        ({"rope_scaling": {"type": "linear"}}, "lack factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor is 0.5"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor is '2'"),
        ({"rope_scaling": {"type": "yarn", **YARN, "beta_speed": 3}}, "'beta_speed' is not known"),
        (
            {
                "rope_scaling": {
                    "type": "llama3",
                    **LLAMA3,
                    "original_max_position_embeddings": None,
                }
            },
            "lacks original_max_position_embeddings",
        ),
        (
            {"rope_scaling": {"type": "llama3", "factor": 8.0, **YARN}},
            "lack low_freq_factor",
        ),
        (
            {
                "rope_scaling": {"type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_theta": 1},
            },
            "both rope_scaling and rope_parameters",
        ),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1}}}, "differ between layers"),
        ({"rope_scaling": "yarn"}, "not an object"),
        ({"rope_scaling": {"type": "yarn", **YARN, "mscale": "1"}}, "mscale is '1'"),
        ({"rope_scaling": {"type": "yarn", **YARN, "beta_fast": [1]}}, "beta_fast is"),
    ],
)
def test_rope_that_is_refused_c092(
    changes: dict[str, Any], words: str, tiny_config: dict[str, Any]
) -> None:
    with pytest.raises(LoadError, match=words):
        hf_config({**tiny_config, **changes})


def test_what_transformers_writes(tmp_path: Path) -> None:
    """What transformers writes today is read; its own reading is the oracle."""
    transformers = pytest.importorskip("transformers")
    for cls, extra in (
        (transformers.LlamaConfig, {"rope_scaling": {"rope_type": "llama3", **LLAMA3}}),
        (transformers.MistralConfig, {"sliding_window": None}),
        (transformers.Qwen2Config, {"rope_scaling": {"type": "yarn", **YARN}, "rope_theta": 5e5}),
        (transformers.Qwen3Config, {"head_dim": 16}),
    ):
        theirs = cls(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, **extra)
        theirs.save_pretrained(tmp_path)
        ours = hf_config(json.loads((tmp_path / "config.json").read_text()))
        assert ours.rope.theta == theirs.rope_parameters["rope_theta"]
        kind = theirs.rope_parameters["rope_type"]
        assert ours.rope.kind == ("plain" if kind == "default" else kind)
        assert ours.rope.factor == theirs.rope_parameters.get("factor", 1.0)
        assert ours.norm_eps == theirs.rms_norm_eps
        assert ours.tied_embeddings == theirs.tie_word_embeddings
        expected_dim = getattr(theirs, "head_dim", None) or 8
        assert ours.head_dim == expected_dim
