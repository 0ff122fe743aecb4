"""``sapwood schemas check``, on schemas of our own and on the open data where it is present."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sapwood.cli import main

DATA = Path(os.environ.get("SAPWOOD_SCHEMAS", "../shared/schemas/maskbench-open.jsonl.gz"))
needs_data = pytest.mark.skipif(not DATA.exists(), reason="SAPWOOD_SCHEMAS names no data")


Check = Callable[[Path], tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def check(default_model_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Runs the command on a file: its exit code, and the lines that it printed."""

    def run(file: Path) -> tuple[int, list[dict[str, Any]]]:
        code = main(["schemas", "check", str(file), "--json", "--model", str(default_model_path)])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_lines(tmp_path: Path, check: Check) -> None:
    object_ = {"properties": {"b": {"type": "integer"}, "a": {}}, "required": ["b"]}
    entries = [
        {"id": "x", "schema": object_, "tests": [{"valid": True, "data": {"a": "é", "b": 1}}]},
        {"id": "y", "schema": {"items": {"extends": {}}}},
        {"id": "z", "schema": {"type": "null"}, "tests": [{"valid": False, "data": None}]},
        {"id": "w", "schema": {"type": "null"}, "tests": [{"valid": True, "data": 1}]},
    ]
    file = tmp_path / "some.jsonl"
    file.write_text("\n".join(map(json.dumps, entries)))
    code, lines = check(file)
    assert code == 1
    assert lines[0] == {"id": "x", "outcome": "right"}
    assert (lines[1]["pointer"], lines[1]["keyword"]) == ("/items", "extends")
    assert lines[2] == {"id": "z", "outcome": "wrongly_accepted", "tests": [0]}
    assert lines[3] == {"id": "w", "outcome": "wrongly_rejected", "tests": [0]}
    assert lines[4] == {"right": 1, "refused": 1, "wrongly_accepted": 1, "wrongly_rejected": 1}


def test_one_schema(tmp_path: Path, check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.json"
    file.write_text('{"type": "object"}')
    assert check(file)[0] == 0
    file.write_text('{"$ref": "http://far.test/x"}')
    assert check(file)[0] == 1
    file.write_text("{")
    assert main(["schemas", "check", str(file)]) == 1
    assert "not JSON" in capsys.readouterr().err


@needs_data
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])
def test_open_data(every: int, tmp_path: Path, check: Check) -> None:
    """No invalid instance is accepted; the shares hold what has been reached."""
    with gzip.open(DATA, "rt") as file:
        lines = sorted(file)[::every]
    part = tmp_path / "part.jsonl"
    part.write_text("".join(lines))
    totals = check(part)[1][-1]
    print(totals)
    assert totals["wrongly_accepted"] == 0
    assert totals["wrongly_rejected"] <= 0.005 * len(lines)
    assert totals["right"] >= 0.98 * len(lines)
