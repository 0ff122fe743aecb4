"""The README: its programs run as they stand."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

import sapwood as sw
from sapwood import Engine

PAGE = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
OURS = [block for block in BLOCKS if "from openai" not in block and "client." not in block]


def test_all_blocks_are_run_somewhere() -> None:
    assert len(BLOCKS) == 4
    assert len(OURS) == 2


@pytest.mark.parametrize("at", range(len(OURS)))
def test_programs_run(
    at: int, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The engine of the tests is not shut down by the program.
    monkeypatch.setattr(sw, "Engine", lambda: contextlib.nullcontext(engine), raising=False)
    exec(compile(OURS[at], str(PAGE), "exec", dont_inherit=True), {"__name__": "readme"})
    assert capsys.readouterr().out.strip()
