"""In which type a model runs."""

from __future__ import annotations

from pathlib import Path

import torch

from ..errors import LoadError

_BFLOAT16_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}


def model_dtype(asked: str, device: torch.device) -> torch.dtype:
    """float32 or bfloat16. ``auto`` is bfloat16 where the hardware multiplies it.

    float16 is not offered: activations of models that were trained in bfloat16 overflow it.
    """
    if asked == "float32":
        return torch.float32
    if asked == "bfloat16":
        return torch.bfloat16
    if asked != "auto":
        raise LoadError(f"dtype {asked!r} is not supported; it must be float32 or bfloat16")
    if device.type != "cpu" or cpu_multiplies_bfloat16():
        return torch.bfloat16
    return torch.float32


def cpu_multiplies_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor has AMX-BF16, AVX512-BF16 or (ARM) BF16 instructions."""
    if not cpuinfo.exists():
        return False
    for line in cpuinfo.read_text().splitlines():
        if line.lower().startswith(("flags", "features")):
            return not _BFLOAT16_FLAGS.isdisjoint(line.split())
    return False
