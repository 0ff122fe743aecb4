"""What type checkers say of programs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "tests" / "frontend_lang" / "examples"


def checked(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command, str(EXAMPLES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_sees_the_types_and_the_mistakes() -> None:
    checked("mypy", "--config-file", str(ROOT / "pyproject.toml"))


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed")
def test_pyright_sees_the_types() -> None:
    checked("pyright", "--pythonpath", sys.executable)


def test_an_import_is_cheap() -> None:
    """Neither torch nor an HTTP client comes with the package, nor with a program on a script."""
    code = (
        "import sys, sapwood as sw\n"
        "p = sw.function(lambda s: s.__iadd__('x' + sw.gen('x')))\n"
        "p.run(backend=sw.Scripted(['y']))\n"
        "heavy = {'torch', 'numpy', 'httpx', 'transformers', 'starlette'} & sys.modules.keys()\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
