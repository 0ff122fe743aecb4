"""Builders of tiny models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from sapwood.constrain.vocabulary import char_of_byte

Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="session")
def byte_tokens() -> list[str]:
    """The 256 pieces that any byte-level vocabulary starts with; id = byte."""
    return char_of_byte()


def _tiny_tensors(hidden: int = 256, vocab: int = 320, layers: int = 1) -> Tensors:
    """Tensors of a llama under Hugging Face's names: 4 heads, 2 for keys and values."""
    rng = np.random.default_rng(7)

    def make(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": make(vocab, hidden),
        "model.norm.weight": make(hidden),
        "lm_head.weight": make(vocab, hidden),
    }
    for i in range(layers):
        layer = {
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (hidden // 2, hidden),
            "self_attn.v_proj": (hidden // 2, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (hidden * 2, hidden),
            "mlp.up_proj": (hidden * 2, hidden),
            "mlp.down_proj": (hidden, hidden * 2),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        tensors |= {f"model.layers.{i}.{name}.weight": make(*s) for name, s in layer.items()}
    return tensors


@pytest.fixture
def tiny_tensors() -> Callable[..., Tensors]:
    return _tiny_tensors


TINY_CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


@pytest.fixture
def tiny_config() -> dict[str, Any]:
    """A ``config.json`` that fits the tensors of ``write_hf``."""
    return dict(TINY_CONFIG)


@pytest.fixture
def write_hf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a checkpoint directory; ``drop`` and ``extra`` change its tensors, ``files`` adds
    JSON files, ``config`` replaces the configuration's keys."""

    def write(
        config: Mapping[str, Any] | None = None,
        *,
        drop: tuple[str, ...] = (),
        extra: Tensors | None = None,
        files: Mapping[str, Any] | None = None,
        rename: Callable[[str], str] = lambda name: name,
    ) -> Path:
        folder = tmp_path / "tiny-model"
        folder.mkdir(exist_ok=True)
        tensors = {**_tiny_tensors(32, 64), **(extra or {})}
        save_file(
            {rename(name): value for name, value in tensors.items() if name not in drop},
            folder / "model.safetensors",
        )
        contents = {"config.json": {**TINY_CONFIG, **(config or {})}, **(files or {})}
        for name, content in contents.items():
            (folder / name).write_text(json.dumps(content))
        return folder

    return write


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def _gguf_name(name: str) -> str:
    for theirs, ours in GGUF_NAMES.items():
        name = name.replace(theirs, ours)
    return name.replace("model.layers.", "blk.")


def _interleaved(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """What the conversion of a llama to GGUF does to Q and K."""
    halves = rows.reshape(n_heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tiny llama as GGUF, its Q and K interleaved as the real conversion does it.

    ``stored`` replaces tensors (by their GGUF names) by ``(blocks, type)``; ``metadata`` are more
    keys; ``tokenizer`` adds a tokenizer's keys; ``interleave=False`` leaves Q and K alone.
    """

    def write(
        arch: str = "llama",
        *,
        tensors: Tensors | None = None,
        stored: Mapping[str, tuple[np.ndarray, gguf.GGMLQuantizationType]] | None = None,
        metadata: Mapping[str, Any] | None = None,
        drop: tuple[str, ...] = (),
        interleave: bool = True,
        name: str = "tiny.gguf",
    ) -> Path:
        writer = gguf.GGUFWriter(tmp_path / name, arch)
        keys: dict[str, Any] = {
            f"{arch}.block_count": 1,
            f"{arch}.context_length": 512,
            f"{arch}.embedding_length": 256,
            f"{arch}.feed_forward_length": 512,
            f"{arch}.attention.head_count": 4,
            f"{arch}.attention.head_count_kv": 2,
            f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{arch}.rope.freq_base": 10000.0,
            **(metadata or {}),
        }
        for key, value in keys.items():
            _add(writer, key, value)
        blocks = dict(stored or {})
        for hf_name, value in (tensors or _tiny_tensors()).items():
            gguf_name = _gguf_name(hf_name)
            if gguf_name in drop or gguf_name in blocks:
                continue
            if interleave and ("q_proj" in hf_name or "k_proj" in hf_name):
                value = _interleaved(value, 4 if "q_proj" in hf_name else 2)
            writer.add_tensor(gguf_name, value)
        for gguf_name, (value, kind) in blocks.items():
            writer.add_tensor(gguf_name, value, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / name

    return write


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    adders |= {str: writer.add_string, list: writer.add_array}
    adders[type(value)](key, value)


@pytest.fixture
def byte_level_json(byte_tokens: list[str]) -> Callable[..., dict[str, Any]]:
    """A byte-level ``tokenizer.json`` with the given merges and special tokens."""

    def make(
        merges: tuple[str, ...] = (), special: tuple[str, ...] = (), added: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        pieces = [*byte_tokens, *(merge.replace(" ", "") for merge in merges), *special, *added]
        vocab = {piece: i for i, piece in enumerate(pieces)}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        byte_level["use_regex"] = True
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": vocab[text], "content": text, "special": text in special, **flags}
                for text in (*special, *added)
            ],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocab, "merges": list(merges)},
        }

    return make
