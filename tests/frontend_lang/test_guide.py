"""The guide: every block of Python runs, from top to bottom."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

import sapwood as sw
from sapwood import Engine

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_every_snippet_runs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sw, "Engine", lambda: engine, raising=False)
    module = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)
    text = PAGE.read_text()
    try:
        for language, block in BLOCKS:
            if language == "python":
                line = text[: text.index(block)].count("\n")
                exec(
                    compile("\n" * line + block, str(PAGE), "exec", dont_inherit=True), vars(module)
                )
    finally:
        sw.set_default_backend(None)
    out = capsys.readouterr().out
    shown = [block for language, block in BLOCKS if not language]
    assert len(shown) == 1
    assert shown[0] in out


def test_every_name_of_the_package_that_the_guide_uses_is_public() -> None:
    used = set(re.findall(r"\bsw\.(\w+)", PAGE.read_text()))
    assert used <= set(sw.__all__)
    ours = {
        name
        for name, module in sw._LAZY.items()
        if "frontend_lang" in module and name not in ("State", "Outcome", "Program")
    }
    told = {name for name in ours if name in PAGE.read_text()}
    rest = {name for name in ours - told if not name.endswith(("_begin", "_end"))}
    assert rest <= {"ServerError", "flush_cache"}
