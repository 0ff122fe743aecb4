"""The rules that keep the parts apart."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("srt", "radix", "constrain", "frontend_lang")
ALLOWED = {
    "frontend_lang": set(),
    "radix": set(),
    "constrain": set(),
    "srt": {"radix", "constrain"},
}
LEVELS = {
    1: ("errors", "config", "model_config", "params", "messages", "request", "batch"),
    2: (
        "channel",
        "metrics",
        "log",
        "stops",
        "checkpoint",
        "tokenizer",
        "chat_template",
        "tool_calls",
    ),
    3: ("memory", "kernels"),
    4: ("attention", "layers", "models", "quant", "sampling"),
    5: ("scheduler", "runner"),
    6: (
        "constraints",
        "interruptible",
        "guidance",
        "held_submits",
        "core",
        "worker",
        "front",
        "detokenizer",
        "processes",
    ),
    7: ("launch", "engine"),
}
LEVEL_OF = {name: level for level, names in LEVELS.items() for name in names}
TORCH_FREE = (
    "sapwood",
    "sapwood.cli",
    "sapwood.srt.messages",
    "sapwood.srt.batch",
    "sapwood.srt.checkpoint",
    "sapwood.srt.tokenizer",
    "sapwood.srt.chat_template",
    "sapwood.srt.tool_calls",
    "sapwood.srt.scheduler",
    "sapwood.srt.front.process",
    "sapwood.srt.detokenizer",
    "sapwood.srt.launch",
    "sapwood.radix",
    "sapwood.constrain.matcher",
    "sapwood.constrain.vocabulary",
    "sapwood.frontend_lang",
)


def imports(path: Path) -> Iterator[str]:
    """Absolute names of the modules that a file imports, ``TYPE_CHECKING`` blocks left out."""
    package = ["sapwood", *path.relative_to(ROOT).parts[:-1]]
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(child for part in node.body for child in ast.walk(part))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_import_directions(folder: str) -> None:
    for path in sources(folder):
        for name in imports(path):
            parts = name.split(".")
            assert parts[0] not in FOLDERS, f"{path}: import {name} by its name in sapwood"
            if parts[0] == "sapwood" and len(parts) > 1 and parts[1] in FOLDERS:
                assert parts[1] in {folder} | ALLOWED[folder], f"{path} imports {name}"


def test_levels_of_srt() -> None:
    for path in sources("srt"):
        own = path.relative_to(ROOT / "srt").parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        assert own in LEVEL_OF, f"{path} has no level in the design"
        for name in imports(path):
            parts = name.split(".")
            if parts[:2] != ["sapwood", "srt"] or len(parts) < 3 or parts[2] == own:
                continue
            if parts[2] in LEVEL_OF:
                assert LEVEL_OF[parts[2]] <= LEVEL_OF[own], f"{path} imports {name}"
            if own == "scheduler":
                assert parts[2] not in ("attention", "models", "runner"), f"{path} imports {name}"


@pytest.mark.parametrize("module", TORCH_FREE)
def test_imports_without_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"{module} imports torch"


def test_names_that_say_nothing_are_not_used() -> None:
    for folder in FOLDERS:
        for path in sources(folder):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    bad = ("Manager", "Helper", "Utils", "Handler", "Mixin", "Base")
                    assert not any(word in node.name for word in bad), f"{path}: {node.name}"
