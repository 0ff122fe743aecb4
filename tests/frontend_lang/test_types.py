"""What type checkers say of programs, and what an import of the package brings along."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
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
    timed = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import sapwood"],
        capture_output=True,
        text=True,
        check=True,
    )
    microseconds = re.findall(r"\| +(\d+) \| sapwood$", timed.stderr, re.MULTILINE)
    assert int(microseconds[0]) < 100_000


def imported(folder: Path) -> Iterator[str]:
    """The packages that a folder's modules import anywhere, lazily too."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                yield node.module.partition(".")[0]


def test_what_is_imported_is_installed_with_the_package() -> None:
    """Of pydantic only callers' own types are used: whoever has one has it."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*told["dependencies"], *told["optional-dependencies"]["gpu"]]
    names = {re.split(r"[^\w-]", each)[0].replace("-", "_") for each in listed}
    names |= {"zmq"} if "pyzmq" in names else set()
    parts = ("sapwood", "srt", "radix", "constrain", "frontend_lang")
    used = {name for part in parts for name in imported(ROOT / part)}
    assert used - set(sys.stdlib_module_names) - {"sapwood", "pydantic"} <= names
