"""The real model, for whichever test needs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sapwood.srt.checkpoint import Checkpoint, find_model, open_checkpoint


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model's file: ``$SAPWOOD_TEST_MODEL``, or wherever the server would find it."""
    told = os.environ.get("SAPWOOD_TEST_MODEL")
    return Path(told) if told else find_model(None)


@pytest.fixture(scope="session")
def default_checkpoint(default_model_path: Path) -> Checkpoint:
    """The default model, opened."""
    return open_checkpoint(default_model_path)
