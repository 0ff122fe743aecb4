"""What a runtime cannot do is refused, by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Unsupported(ValueError):
    """A runtime was asked for what it cannot do. ``name`` is the parameter."""

    def __init__(self, who: str, name: str) -> None:
        super().__init__(f"{who} does not support {name}")
        self.name = name


def refuse(who: str, changed: Mapping[str, Any], cannot: Iterable[str]) -> None:
    """``Unsupported`` for the first of ``cannot`` that was set."""
    for name in cannot:
        if name in changed:
            raise Unsupported(who, name)
