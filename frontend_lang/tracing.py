"""``trace``: what a program would send, without a model."""

from __future__ import annotations

from typing import Any


def trace(program: Any, *args: Any, backend: Any = None, **given: Any) -> Any:
    raise NotImplementedError


def warm(program: Any, runtime: Any, common: Any) -> str:
    return ""
