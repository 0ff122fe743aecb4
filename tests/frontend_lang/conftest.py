"""One engine of the real model for all tests of the language."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sapwood import Engine


@pytest.fixture(scope="session")
def engine(default_model_path: Path) -> Iterator[Engine]:
    with Engine(str(default_model_path), kv_tokens=12000) as made:
        yield made
