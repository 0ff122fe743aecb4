"""A random two-layer llama of 320 tokens on disk: a real checkpoint that computes in no time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from sapwood.constrain.vocabulary import char_of_byte

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "eos_token_id": 1,
}
_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
_PRODUCTS = {
    "self_attn.q_proj": (64, 64),
    "self_attn.k_proj": (32, 64),
    "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (96, 64),
    "mlp.up_proj": (96, 64),
    "mlp.down_proj": (64, 96),
}
_NORMS = ("input_layernorm", "post_attention_layernorm")


def write_tiny(folder: Path) -> Path:
    """Writes the checkpoint, its tokenizer of single bytes included; returns the folder."""
    source = np.random.default_rng(4)
    shapes = {"model.embed_tokens": (320, 64), "lm_head": (320, 64)}
    shapes |= {f"model.layers.{i}.{name}": s for i in range(2) for name, s in _PRODUCTS.items()}
    tensors = {
        f"{name}.weight": source.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    norms = ["model.norm", *(f"model.layers.{i}.{name}" for i in range(2) for name in _NORMS)]
    tensors |= {f"{name}.weight": np.ones(64, np.float32) for name in norms}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    pieces = [*char_of_byte(), *(chr(0x400 + i) for i in range(64))]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": _BYTE_LEVEL,
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": [],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder
