"""Hugging Face directories: configuration, RoPE spellings, tied heads, ends, shards, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.numpy import save_file

from sapwood.srt.checkpoint import open_checkpoint
from sapwood.srt.checkpoint.hf_config import hf_config
from sapwood.srt.errors import LoadError
from sapwood.srt.model_config import expected_tensors

Write = Callable[..., Path]
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def test_a_directory_comes_back_as_it_was(
    write_hf: Write, tiny_tensors: Callable[..., Any]
) -> None:
    checkpoint = open_checkpoint(write_hf())
    assert checkpoint.name == "tiny-model"
    assert checkpoint.quantization == "F32"
    original = tiny_tensors(32, 64)
    assert checkpoint.weights().keys() == original.keys()
    for name, value in original.items():
        np.testing.assert_array_equal(checkpoint.weights()[name].read(), value)
    shapes = {name: weight.shape for name, weight in checkpoint.weights().items()}
    assert shapes == expected_tensors(checkpoint.config)


def test_half_precision(write_hf: Write, tiny_tensors: Callable[..., Any]) -> None:
    """bfloat16, which numpy lacks, is offered as its bits and widened exactly."""
    value = torch.from_numpy(tiny_tensors(32, 64)[EMBEDDING])
    folder = write_hf()
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    stored |= {EMBEDDING: value.bfloat16(), HEAD: value.half()}
    safetensors.torch.save_file(stored, folder / "model.safetensors")
    checkpoint = open_checkpoint(folder)
    weights = checkpoint.weights()
    assert (weights[EMBEDDING].dtype, weights[HEAD].dtype) == ("BF16", "F16")
    assert weights[EMBEDDING].stored().dtype == np.uint16
    np.testing.assert_array_equal(weights[EMBEDDING].read(), value.bfloat16().float().numpy())
    np.testing.assert_array_equal(weights[HEAD].read(), value.half().float().numpy())
    assert set(checkpoint.quantization.split(", ")) == {"F32", "BF16", "F16"}


# Configurations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, {"qkv_bias": False, "architecture": "llama", "head_dim": 8}),
        (
            {"attention_bias": True, "mlp_bias": True},
            {"qkv_bias": True, "out_bias": True, "mlp_bias": True},
        ),
        ({"num_key_value_heads": None}, {"n_kv_heads": 4}),
        ({"head_dim": 16}, {"head_dim": 16}),
        (
            {"model_type": "mistral", "architectures": ["MistralForCausalLM"]},
            {"architecture": "llama", "sliding_window": 4096},
        ),
        ({"model_type": "mistral", "sliding_window": None}, {"sliding_window": None}),
        (
            {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 16},
            {"architecture": "qwen2", "qkv_bias": True, "out_bias": False, "sliding_window": None},
        ),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 16,
                "use_sliding_window": True,
                "max_window_layers": 0,
            },
            {"sliding_window": 16},
        ),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 16,
                "use_sliding_window": True,
                "max_window_layers": 1,
            },
            {"sliding_window": None},
        ),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 16,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention"],
            },
            {"sliding_window": 16},
        ),
        (
            {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
            {"architecture": "qwen3", "qk_norm": True, "head_dim": 128, "qkv_bias": False},
        ),
    ],
)
def test_configurations(
    changes: dict[str, Any], shape: dict[str, Any], tiny_config: dict[str, Any]
) -> None:
    if "architectures" not in changes and "model_type" in changes:
        changes = {**changes, "architectures": None}
    config = hf_config({**tiny_config, **changes})
    assert {key: getattr(config, key) for key in shape} == shape


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel is not supported"),
        ({"model_type": "gemma3", "architectures": None}, "'gemma3' is not supported"),
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"vocab_size": "64"}, "vocab_size is '64'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "lacks head_dim"),
        ({"num_key_value_heads": 3}, "cannot share 3"),
        ({"head_dim": 7}, "head of 7 elements"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"text_config": 3}, "text_config"),
        ({"sliding_window": "wide"}, "sliding_window is 'wide'"),
    ],
)
def test_configurations_that_are_refused(
    changes: dict[str, Any], words: str, tiny_config: dict[str, Any]
) -> None:
    with pytest.raises(LoadError, match=words):
        hf_config({**tiny_config, **changes})


# C090: tied embeddings -----------------------------------------------------------------------


def _tied(flag: bool, nested: bool) -> dict[str, Any]:
    """A configuration with the flag at the top level, or inside ``text_config``."""
    from_top = {"tie_word_embeddings": flag}
    if not nested:
        return from_top
    inner = {"model_type": "llama", "hidden_size": 32, "tie_word_embeddings": flag}
    return {"text_config": inner, "tie_word_embeddings": not flag, "architectures": None}


@pytest.mark.parametrize("nested", [False, True])
def test_tied_embeddings_c090(
    nested: bool, write_hf: Write, tiny_tensors: Callable[..., Any]
) -> None:
    """C090: tied without a head, tied with an identical one, untied with one: all load; untied
    without one, or tied with another, does not."""
    embedding = tiny_tensors(32, 64)[EMBEDDING]

    checkpoint = open_checkpoint(write_hf(_tied(True, nested), drop=(HEAD,)))
    assert checkpoint.config.tied_embeddings
    assert HEAD not in checkpoint.weights()

    checkpoint = open_checkpoint(write_hf(_tied(True, nested), extra={HEAD: embedding.copy()}))
    assert checkpoint.config.tied_embeddings
    assert HEAD not in checkpoint.weights()

    checkpoint = open_checkpoint(write_hf(_tied(False, nested)))
    assert not checkpoint.config.tied_embeddings
    assert checkpoint.weights()[HEAD].shape == (64, 32)

    with pytest.raises(LoadError, match=r"missing.*lm_head.weight"):
        open_checkpoint(write_hf(_tied(False, nested), drop=(HEAD,)))
    with pytest.raises(LoadError, match=r"tie_word_embeddings is true.*differs"):
        open_checkpoint(write_hf(_tied(True, nested)))


@pytest.mark.parametrize(
    "prefix", ["language_model.", "model.language_model.", "language_model.model."]
)
def test_names_of_nested_language_models(prefix: str, write_hf: Write) -> None:
    def rename(name: str) -> str:
        return prefix + (name if prefix == "language_model." else name.removeprefix("model."))

    folder = write_hf({"tie_word_embeddings": True}, drop=(HEAD,), rename=rename)
    assert open_checkpoint(folder).weights()[EMBEDDING].shape == (64, 32)


# C093: ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "ends"),
    [
        (2, None, None, {2}),
        ([2, 5], None, None, {2, 5}),
        (2, [7, 8], "<end>", {2, 7, 8, 11}),
        (None, 7, None, {7}),
        (None, None, "<end>", {11}),
        (None, None, None, set()),
    ],
)
def test_ends_are_united_c093(
    config: Any, generation: Any, tokenizer: str | None, ends: set[int], write_hf: Write
) -> None:
    files: dict[str, Any] = {"generation_config.json": {"eos_token_id": generation}}
    if tokenizer:
        vocab = {chr(97 + i): i for i in range(11)} | {"<end>": 11}
        files["tokenizer.json"] = {"model": {"type": "BPE", "vocab": vocab, "merges": []}}
        files["tokenizer_config.json"] = {"eos_token": {"content": "<end>"}}
    folder = write_hf({"eos_token_id": config}, files=files)
    assert open_checkpoint(folder).eos_ids == ends


@pytest.mark.parametrize("value", ["2", [1, "2"], True, -1, 64])
def test_ends_that_are_refused_c093(value: Any, write_hf: Write) -> None:
    with pytest.raises(LoadError, match=r"eos_token_id|end token 64"):
        open_checkpoint(write_hf({"eos_token_id": value}))


def test_sampling_defaults(write_hf: Write) -> None:
    advised = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": None, "do_sample": True}
    folder = write_hf(files={"generation_config.json": advised})
    assert open_checkpoint(folder).generation_defaults == {
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
    }
    for bad, words in (({"top_p": 7}, "top_p is 7"), ({"top_k": "20"}, "top_k is '20'")):
        with pytest.raises(LoadError, match=words):
            open_checkpoint(write_hf(files={"generation_config.json": bad}))


# Files ---------------------------------------------------------------------------------------


def _shards(folder: Path, tensors: dict[str, np.ndarray]) -> dict[str, str]:
    (folder / "model.safetensors").unlink()
    owners = {}
    for i, name in enumerate(sorted(tensors)):
        owners[name] = f"model-0000{i % 2 + 1}-of-00002.safetensors"
    for shard in set(owners.values()):
        part = {name: value for name, value in tensors.items() if owners[name] == shard}
        save_file(part, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": owners}))
    return owners


def test_shards(write_hf: Write, tiny_tensors: Callable[..., Any]) -> None:
    folder, tensors = write_hf(), tiny_tensors(32, 64)
    owners = _shards(folder, tensors)
    weights = open_checkpoint(folder).weights()
    for name, value in tensors.items():
        np.testing.assert_array_equal(weights[name].read(), value)

    (folder / owners[HEAD]).unlink()
    with pytest.raises(LoadError, match=f"shards are missing.*{owners[HEAD]}"):
        open_checkpoint(folder)


def test_an_index_that_is_wrong(write_hf: Write, tiny_tensors: Callable[..., Any]) -> None:
    folder = write_hf()
    owners = _shards(folder, tiny_tensors(32, 64))
    index = folder / "model.safetensors.index.json"
    other = next(shard for shard in owners.values() if shard != owners[HEAD])
    for changes, words in (
        ({"ghost": owners[HEAD]}, "missing from their shards: ghost"),
        ({HEAD: other}, "does not place there"),
        ({HEAD: "../up.safetensors"}, "outside its directory"),
    ):
        index.write_text(json.dumps({"weight_map": {**owners, **changes}}))
        with pytest.raises(LoadError, match=words):
            open_checkpoint(folder)
    index.write_text("[]")
    with pytest.raises(LoadError, match="not an index"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"drop": ("model.norm.weight",)}, r"missing from the checkpoint: model.norm.weight"),
        (
            {"extra": {"model.layers.1.mlp.up_proj.weight": np.ones((2, 2), np.float32)}},
            r"does not account for: model.layers.1.mlp.up_proj.weight",
        ),
        (
            {"extra": {"model.norm.weight": np.ones(31, np.float32)}},
            r"model.norm.weight has the shape \[31\]; the configuration makes it \[32\]",
        ),
        (
            {"extra": {"model.norm.weight": np.ones(32, np.int8)}},
            "model.norm.weight is stored as I8",
        ),
    ],
)
def test_tensors_that_are_refused(changes: dict[str, Any], words: str, write_hf: Write) -> None:
    with pytest.raises(LoadError, match=words):
        open_checkpoint(write_hf(**changes))


def test_stored_rotary_frequencies_are_not_surplus(write_hf: Write) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    weights = open_checkpoint(write_hf(extra={name: np.ones(4, np.float32)})).weights()
    assert name not in weights


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "block",
    [
        {"quant_method": "gptq", "bits": 4},
        {"quant_method": "awq", "modules_to_not_convert": ["lm_head"]},
        {"quant_method": "fp8", "ignored_layers": ["re:.*"]},
        {"quant_method": "compressed-tensors"},
        {},
    ],
)
def test_quantised_checkpoints_are_refused_c097(
    block: dict[str, Any], nested: bool, tiny_config: dict[str, Any]
) -> None:
    """C097: whatever the method says it skips, it is named and nothing is loaded."""
    place = {"quantization_config": block}
    config = {**tiny_config, **({"text_config": place} if nested else place)}
    with pytest.raises(LoadError, match=block.get("quant_method", "unnamed")):
        hf_config(config)


def test_scales_beside_plain_weights_are_refused_c097(write_hf: Write) -> None:
    """C097: quantised tensors under a configuration that does not say so."""
    extra = {"model.layers.0.mlp.up_proj.weight_scale": np.ones(1, np.float32)}
    with pytest.raises(LoadError, match=r"does not account for.*weight_scale"):
        open_checkpoint(write_hf(extra=extra))


def test_files_that_are_refused(write_hf: Write) -> None:
    folder = write_hf()
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for data, words in (
        (whole[:-8], "cut off"),
        (whole[:100], "cut off"),
        (b"\x05" + bytes(7) + b"[1,2]", "not a safetensors file"),
        (b"", "cannot be read"),
    ):
        weights.write_bytes(data)
        with pytest.raises(LoadError, match=words):
            open_checkpoint(folder)
    weights.unlink()
    with pytest.raises(LoadError, match=r"has no \.safetensors file"):
        open_checkpoint(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(LoadError, match=r"pickle files \(pytorch_model\.bin"):
        open_checkpoint(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(LoadError, match=r"config.json is not JSON"):
        open_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(LoadError, match=r"has no config\.json"):
        open_checkpoint(folder)


def test_weights_that_no_index_names_are_refused(write_hf: Callable[..., Path]) -> None:
    """Nothing is skipped; a copy in another layout goes by another name."""
    folder = write_hf()
    shutil.copy(folder / "model.safetensors", folder / "consolidated.safetensors")
    open_checkpoint(folder).weights()
    shutil.copy(folder / "model.safetensors", folder / "model-00002-of-00002.safetensors")
    with pytest.raises(LoadError, match="model-00002-of-00002"):
        open_checkpoint(folder)


@pytest.mark.parametrize("wrong", [5, -1, 1.5, True, "LlamaForCausalLM"])
def test_architectures_that_are_no_list_are_refused(
    wrong: Any, write_hf: Callable[..., Path]
) -> None:
    with pytest.raises(LoadError, match="architectures"):
        open_checkpoint(write_hf({"architectures": wrong}))
