"""Which template is used: the model's own, or a file in its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import LoadError


def template_sources(own: Mapping[str, str], path: str | None) -> dict[str, str]:
    """Jinja sources by name; ``LoadError`` for a file that cannot be read."""
    if path is None:
        return dict(own)
    try:
        return {"default": Path(path).read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"the chat template {path} cannot be read: {error}") from error
