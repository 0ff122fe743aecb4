"""From a path to a ``Checkpoint``."""

from __future__ import annotations

from pathlib import Path

from ..errors import LoadError
from ..model_config import ModelConfig
from ..tokenizer import Tokenizer
from ..tokenizer.files import (
    eos_from_files,
    read_json,
    templates_from_files,
    tokenizer_from_files,
)
from ..tokenizer.gguf_metadata import tokenizer_from_gguf
from .checkpoint import Checkpoint
from .gguf_file import GgufFile
from .gguf_model import gguf_config, gguf_eos, gguf_templates, gguf_weights
from .hf_config import hf_config, merged
from .hf_model import end_ids, generation_defaults, hf_weights
from .names import served_name
from .weights import quantization


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Opens a ``.gguf`` file or a checkpoint directory.

    Reads metadata and checks that exactly the tensors are there that the configuration needs.
    Raises ``LoadError`` naming whatever is missing, surplus or not supported.
    """
    path = Path(path)
    if path.is_dir():
        ggufs = list(path.glob("*.gguf"))
        if len(ggufs) == 1 and not (path / "config.json").is_file():
            return _open_gguf(ggufs[0])
        return _open_directory(path)
    if path.is_file():
        return _open_gguf(path)
    raise LoadError(f"{path} does not exist")


def _open_gguf(path: Path) -> Checkpoint:
    file = GgufFile(path)
    config = gguf_config(file)
    weights = gguf_weights(file, config)
    return Checkpoint(
        path=path,
        name=served_name(path),
        config=config,
        eos_ids=_checked_ends(gguf_eos(file), config),
        chat_templates=gguf_templates(file),
        quantization=quantization(weights),
        open_tokenizer=lambda: _checked(tokenizer_from_gguf(file.metadata), config),
        open_weights=lambda: weights,
    )


def _open_directory(folder: Path) -> Checkpoint:
    raw = read_json(folder / "config.json")
    if not raw:
        raise LoadError(f"{folder} has no config.json")
    config = hf_config(raw)
    generation = read_json(folder / "generation_config.json")
    weights = hf_weights(folder, config)
    eos = eos_from_files(folder)
    ends = end_ids(raw, merged(raw), generation) | (frozenset() if eos is None else {eos})
    return Checkpoint(
        path=folder,
        name=served_name(folder),
        config=config,
        eos_ids=_checked_ends(ends, config),
        generation_defaults=generation_defaults(generation),
        chat_templates=templates_from_files(folder),
        quantization=quantization(weights),
        open_tokenizer=lambda: _checked(tokenizer_from_files(folder), config),
        open_weights=lambda: weights,
    )


def _checked_ends(ends: frozenset[int], config: ModelConfig) -> frozenset[int]:
    for token in ends:
        if token >= config.vocab_size:
            raise LoadError(
                f"the end token {token} is outside the model's vocabulary of {config.vocab_size}"
            )
    return ends


def _checked(tokenizer: Tokenizer, config: ModelConfig) -> Tokenizer:
    if tokenizer.vocab_size > config.vocab_size:
        raise LoadError(
            f"the tokenizer has ids up to {tokenizer.vocab_size - 1}, "
            f"but the model's vocabulary ends at {config.vocab_size - 1}"
        )
    return tokenizer
