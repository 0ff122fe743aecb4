"""From a path to a ``Checkpoint``."""

from __future__ import annotations

from pathlib import Path

from ..errors import LoadError
from ..tokenizer.gguf_metadata import tokenizer_from_gguf
from .checkpoint import Checkpoint
from .gguf_file import GgufFile
from .gguf_model import gguf_config, gguf_eos, gguf_templates, gguf_weights, quantization
from .names import served_name


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Opens a ``.gguf`` file or a checkpoint directory.

    Reads metadata and checks that exactly the tensors are there that the configuration needs.
    Raises ``LoadError`` naming whatever is missing, surplus or not supported.
    """
    path = Path(path)
    if path.is_dir():
        raise LoadError(f"{path} is a directory, which is not supported yet")
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
        eos_ids=gguf_eos(file),
        chat_templates=gguf_templates(file),
        quantization=quantization(file),
        open_tokenizer=lambda: tokenizer_from_gguf(file.metadata),
        open_weights=lambda: weights,
    )
