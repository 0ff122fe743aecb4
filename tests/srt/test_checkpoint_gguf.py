"""GGUF files: container, configuration, names, row order, tensor types, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from sapwood.srt.checkpoint import Checkpoint, open_checkpoint
from sapwood.srt.checkpoint.gguf_file import SUPPORTED_TYPES, GgufFile
from sapwood.srt.errors import LoadError
from sapwood.srt.model_config import ModelConfig, RopeConfig, expected_tensors

Write = Callable[..., Path]
Kind = gguf.GGMLQuantizationType


def test_a_llama_comes_back_as_it_was(write_gguf: Write, tiny_tensors: Callable[..., Any]) -> None:
    """Names are canonical, and the conversion's order of Q and K rows is undone."""
    weights = open_checkpoint(write_gguf()).weights()
    original = tiny_tensors()
    assert weights.keys() == original.keys()
    for name, value in original.items():
        assert weights[name].shape == value.shape
        np.testing.assert_array_equal(weights[name].read(), value, err_msg=name)


@pytest.mark.parametrize("arch", ["qwen2", "qwen3"])
def test_rows_of_a_qwen_stay(
    arch: str, write_gguf: Write, tiny_tensors: Callable[..., Any]
) -> None:
    tensors = tiny_tensors()
    if arch == "qwen3":
        for name in ("q_norm", "k_norm"):
            tensors[f"model.layers.0.self_attn.{name}.weight"] = np.arange(64, dtype=np.float32)
    else:
        sizes = {"q": 256, "k": 128, "v": 128}
        for name, size in sizes.items():
            bias = np.arange(size, dtype=np.float32)
            tensors[f"model.layers.0.self_attn.{name}_proj.bias"] = bias
    renamed = {
        name.replace("self_attn.q_norm", "attn_q_norm").replace(
            "self_attn.k_norm", "attn_k_norm"
        ): v
        for name, v in tensors.items()
    }
    checkpoint = open_checkpoint(write_gguf(arch, tensors=renamed, interleave=False))
    assert checkpoint.config.architecture == arch
    assert checkpoint.config.qkv_bias == (arch == "qwen2")
    assert checkpoint.config.qk_norm == (arch == "qwen3")
    for name, weight in checkpoint.weights().items():
        np.testing.assert_array_equal(weight.read(), tensors[name], err_msg=name)


def test_biases_of_a_llama_are_reordered_too(
    write_gguf: Write, tiny_tensors: Callable[..., Any]
) -> None:
    tensors = tiny_tensors()
    for name, size in {"q": 256, "k": 128, "v": 128}.items():
        tensors[f"model.layers.0.self_attn.{name}_proj.bias"] = np.arange(size, dtype=np.float32)
    weights = open_checkpoint(write_gguf(tensors=tensors)).weights()
    for name in "qkv":
        key = f"model.layers.0.self_attn.{name}_proj.bias"
        np.testing.assert_array_equal(weights[key].read(), tensors[key])


def _blocks(kind: Kind, rows: int, columns: int) -> np.ndarray:
    """Random blocks with moderate scales."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(3)
    raw = rng.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    scale = np.array([0.25], np.float16).view(np.uint8)
    if kind is Kind.Q6_K:
        raw[..., -2:] = scale
    else:
        raw[..., 0:2] = scale
        raw[..., 2:4] = scale
    return raw.reshape(rows, -1)


def _encoded(kind: Kind, value: np.ndarray) -> np.ndarray:
    if kind in (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K):
        return _blocks(kind, *value.shape)
    blocks: np.ndarray = gguf.quants.quantize(value, kind)
    return blocks


@pytest.mark.parametrize("kind", SUPPORTED_TYPES)
def test_each_tensor_type(kind: str, write_gguf: Write, tiny_tensors: Callable[..., Any]) -> None:
    """What is read equals what the format's own package makes of the same blocks, Q's rows put
    back in order; and it is close to what was quantised."""
    tensors, quant = tiny_tensors(), Kind[kind]
    down, q = (tensors[f"model.layers.0.{n}.weight"] for n in ("mlp.down_proj", "self_attn.q_proj"))
    order = np.arange(256).reshape(4, 2, 32).swapaxes(1, 2).ravel()
    stored = {
        "blk.0.ffn_down.weight": (_encoded(quant, down), quant),
        "blk.0.attn_q.weight": (_encoded(quant, q[order]), quant),
    }
    path = write_gguf(stored=stored)
    weights = open_checkpoint(path).weights()
    reader = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}

    def oracle(name: str) -> np.ndarray:
        values: np.ndarray = gguf.quants.dequantize(reader[name].data, quant)
        return values

    read_down = weights["model.layers.0.mlp.down_proj.weight"]
    assert read_down.dtype == kind
    assert read_down.read().dtype == np.float32
    np.testing.assert_array_equal(read_down.read(), oracle("blk.0.ffn_down.weight"))
    read_q = weights["model.layers.0.self_attn.q_proj.weight"].read()
    np.testing.assert_array_equal(read_q[order], oracle("blk.0.attn_q.weight"))
    if quant not in (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K):
        assert np.abs(read_q - q).max() < 0.5


def test_the_real_model_reads_as_by_the_gguf_package(default_model_path: Path) -> None:
    ours, theirs = GgufFile(default_model_path), gguf.GGUFReader(default_model_path)
    fields = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert ours.metadata == fields
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors[:10]:
        stored = ours.stored(ours.tensors[tensor.name])
        np.testing.assert_array_equal(stored, tensor.data.reshape(stored.shape))


def test_the_real_model(default_checkpoint: Checkpoint) -> None:
    assert default_checkpoint.name == "SmolLM2-135M-Instruct"
    assert default_checkpoint.quantization == "Q4_1, Q8_0"
    assert default_checkpoint.eos_ids == {2}
    assert default_checkpoint.vocabulary.eos_ids == {2}
    assert default_checkpoint.vocabulary.size == 49152
    assert default_checkpoint.config == ModelConfig(
        architecture="llama",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        n_layers=30,
        n_heads=9,
        n_kv_heads=3,
        head_dim=64,
        norm_eps=1e-5,
        max_positions=8192,
        rope=RopeConfig(theta=100000.0),
        tied_embeddings=True,
    )
    shapes = {name: weight.shape for name, weight in default_checkpoint.weights().items()}
    assert shapes == expected_tensors(default_checkpoint.config)
    norm = default_checkpoint.weights()["model.norm.weight"].read()
    assert norm.shape == (576,)
    assert np.isfinite(norm).all()


def test_a_tied_head_is_one_that_is_not_there(write_gguf: Write) -> None:
    checkpoint = open_checkpoint(write_gguf(drop=("output.weight",)))
    assert checkpoint.config.tied_embeddings
    assert "lm_head.weight" not in checkpoint.weights()


def test_end_tokens_are_united_c093(write_gguf: Write) -> None:
    """C093: every end that the file names."""
    keys = {"eos_token_id": 3, "eot_token_id": 7, "eom_token_id": 9}
    path = write_gguf(metadata={f"tokenizer.ggml.{k}": v for k, v in keys.items()})
    assert open_checkpoint(path).eos_ids == {3, 7, 9}
    assert open_checkpoint(write_gguf()).eos_ids == frozenset()


def test_rope_scaling_c092(write_gguf: Write) -> None:
    """C092: linear, yarn (context = factor x original) and llama3's table of factors."""
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    config = open_checkpoint(write_gguf(metadata=linear)).config
    assert (config.rope.kind, config.rope.factor, config.max_positions) == ("linear", 4.0, 512)
    yarn = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 256,
    }
    config = open_checkpoint(write_gguf(metadata=yarn)).config
    assert (config.rope.kind, config.rope.original_positions) == ("yarn", 256)
    assert config.max_positions == 1024
    factors = np.linspace(1, 8, 32, dtype=np.float32)
    path = write_gguf(stored={"rope_freqs.weight": (factors, Kind.F32)})
    rope = open_checkpoint(path).config.rope
    assert rope.kind == "plain"
    assert rope.freq_factors == tuple(float(x) for x in factors)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arch": "mamba"}, "architecture 'mamba' is not supported"),
        ({"drop": ("blk.0.ffn_up.weight",)}, "missing.*mlp.up_proj"),
        ({"drop": ("token_embd.weight",)}, "missing.*token_embd"),
        (
            {"stored": {"blk.0.extra.weight": (np.ones(4, np.float32), Kind.F32)}},
            r"does not account for: blk.0.extra.weight",
        ),
        (
            {"stored": {"output_norm.weight": (np.ones(8, np.float32), Kind.F32)}},
            r"model.norm.weight has the shape \[8\].*\[256\]",
        ),
        (
            {"stored": {"output_norm.weight": (np.ones(256, np.int32), Kind.I32)}},
            "output_norm.weight has the type I32",
        ),
        (
            {"stored": {"rope_freqs.weight": (np.ones(5, np.float32), Kind.F32)}},
            "rope_freqs.weight has the shape",
        ),
        ({"metadata": {"llama.expert_count": 8}}, "mixture-of-experts"),
        ({"metadata": {"llama.embedding_length": None}}, "lacks the metadata llama.embedding"),
        ({"metadata": {"llama.block_count": "1"}}, "llama.block_count is '1'"),
        ({"metadata": {"llama.block_count": 2**32 - 1}}, "4294967295 layers.* 12 tensors"),
        ({"metadata": {"llama.attention.head_count": 0}}, "head_count is 0"),
        ({"metadata": {"llama.attention.head_count_kv": 3}}, "cannot share 3"),
        ({"metadata": {"llama.attention.head_count": [4]}}, "head_count is .4., not of type int"),
        ({"metadata": {"llama.rope.scaling.type": "longrope"}}, "longrope"),
        (
            {"metadata": {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 2.0}},
            "original_context_length",
        ),
        ({"metadata": {"llama.rope.dimension_count": 32}}, "rope.dimension_count is 32"),
        ({"metadata": {"split.count": 2}}, "split model"),
        ({"metadata": {"tokenizer.ggml.eos_token_id": 5000}}, "end token 5000"),
    ],
)
def test_refusals_name_what_is_wrong(
    changes: dict[str, Any], words: str, write_gguf: Write
) -> None:
    path = write_gguf(**changes)
    with pytest.raises(LoadError, match=words):
        open_checkpoint(path)


def test_a_broken_file_is_refused(write_gguf: Write, tmp_path: Path) -> None:
    whole = write_gguf().read_bytes()
    broken = tmp_path / "broken.gguf"
    for data, words in (
        (b"", "cannot be read"),
        (b"PK\x03\x04" + whole[4:], "not a GGUF file"),
        (whole[:60], "not a complete GGUF file"),
        (whole[:-64], "cut off"),
        (whole[:4] + b"\x01\x00\x00\x00" + whole[8:], "version 1"),
        (whole[:4] + b"\x00\x00\x00\x03" + whole[8:], "big-endian"),
    ):
        broken.write_bytes(data)
        with pytest.raises(LoadError, match=words):
            open_checkpoint(broken)
    with pytest.raises(LoadError, match="does not exist"):
        open_checkpoint(tmp_path / "none.gguf")


def test_no_damage_to_the_head_of_a_file_goes_unnamed(write_gguf: Write, tmp_path: Path) -> None:
    """Whatever byte is wrong: the file opens, or it is refused with a ``LoadError``."""
    whole = bytearray(write_gguf().read_bytes())
    head = whole.index(b"output_norm.weight")
    broken, rng = tmp_path / "broken.gguf", np.random.default_rng(2)
    refused = 0
    for at in rng.integers(0, head, 150):
        data = bytearray(whole)
        data[at] = rng.choice([0, 255, data[at] ^ 1])
        broken.write_bytes(data)
        try:
            open_checkpoint(broken)
        except LoadError:
            refused += 1
    assert refused > 50


def test_a_window_below_the_context_is_refused_where_it_matters(write_gguf: Write) -> None:
    path = write_gguf(metadata={"llama.attention.sliding_window": 128})
    config = open_checkpoint(path).config
    assert config.context(128) == 128
    with pytest.raises(LoadError, match="window of 128"):
        config.context()
    with pytest.raises(LoadError, match="supports 512"):
        config.context(513)
    with pytest.raises(LoadError, match="1 or more"):
        config.context(0)


def test_weights_stay_in_the_file_until_read(default_checkpoint: Checkpoint) -> None:
    weight = default_checkpoint.weights()["model.embed_tokens.weight"]
    assert not weight.stored().flags.writeable
    assert not weight.stored().flags.owndata
