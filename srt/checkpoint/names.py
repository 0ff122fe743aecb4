"""What a model is called, where nobody says so."""

from __future__ import annotations

import re
from pathlib import Path

_QUANT = re.compile(r"[.-]((I?Q|TQ)\d\w*|F16|F32|BF16|FP16|FP32)$", re.IGNORECASE)
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def served_name(path: Path) -> str:
    """The file's or directory's name without suffix and quantisation.

    ``SmolLM2-135M-Instruct.Q4_1.gguf`` is ``SmolLM2-135M-Instruct``; a directory of the hub's
    cache (``models--owner--name/snapshots/...``) is ``owner/name``.
    """
    path = path.resolve() if path.is_dir() else path
    for part in reversed(path.parts):
        if part.startswith("models--") and path.is_dir():
            return part.removeprefix("models--").replace("--", "/")
    if path.suffix != ".gguf":
        return path.name
    stem = _SHARD.sub("", path.name.removesuffix(".gguf"))
    return _QUANT.sub("", stem) or stem
