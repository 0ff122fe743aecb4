"""Sapwood: a structured-generation server for language models.

Names are loaded when first used, so that ``import sapwood`` stays cheap and pulls in no torch: a
program that only talks to a remote server pays for none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "Engine": "sapwood.srt.engine",
    "SamplingParams": "sapwood.srt.params",
}

if TYPE_CHECKING:
    from sapwood.srt.engine import Engine as Engine
    from sapwood.srt.params import SamplingParams as SamplingParams

__all__ = ["Engine", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'sapwood' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
