"""Compilation: where machine code is cached, and how a kernel runs on torch's own threads.

**Cache.** numba caches machine code by source file, signature and the processor's name and
features, so code for another machine is never loaded. It does not see changes in the *other* files
that a kernel is made of; ours therefore lives in a folder named after a digest of all sources of
this package and the compiler's version. The folder is in ``NUMBA_CACHE_DIR``, or the user's cache
folder, or the temporary folder: the first that can be written.

**Threads.** A second pool of threads beside torch's would spin against it. Kernels that share out
work are plain C functions that take tickets until none is left, and ``GOMP_parallel`` of the OpenMP
library that torch has loaded runs them on torch's team. Where there is no such library they run on
the calling thread.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numba
import torch
from numba import types


class Kernel(NamedTuple):
    """A compiled function and the one signature that it is called with."""

    function: Any
    signature: Any


def _digest() -> str:
    found = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        found.update(source.read_bytes())
    return found.hexdigest()[:16]


def _roots() -> Iterator[Path]:
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(chosen)
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        yield Path(chosen) / "sapwood"
    yield Path(os.path.expanduser("~")) / ".cache" / "sapwood"
    yield Path(tempfile.gettempdir()) / f"sapwood-{os.getuid()}"


@cache
def cache_folder() -> Path | None:
    """The folder of this version's machine code, made; None where nothing can be written."""
    name = f"kernels-{_digest()}"
    for root in _roots():
        try:
            (root / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(root / name, os.W_OK) and (root / name).stat().st_uid == os.getuid():
            return root / name
    return None


@contextmanager
def _caching() -> Iterator[bool]:
    folder, before = cache_folder(), numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or "")
    try:
        yield folder is not None
    finally:
        numba.config.CACHE_DIR = before


def piece(function: Callable[..., Any]) -> Any:
    """A function that kernels are made of; compiled as part of them."""
    return numba.njit(nogil=True, error_model="numpy")(function)


def kernel(*arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """A function called from Python with plain numbers and addresses, returning nothing.

    Loaded from the cache or compiled by ``ready`` below, or else on the first call.
    """

    def wrap(function: Callable[..., Any]) -> Any:
        with _caching() as cached:
            made = numba.njit(nogil=True, error_model="numpy", cache=cached)(function)
        made.sapwood_signature = types.void(*arguments)
        return made

    return wrap


def ready(made: Any) -> bool:
    """Loads or compiles a kernel; whether it came from the cache.

    From then on a call with arguments of other types is a ``TypeError``, and not seconds of
    compiling that nobody has asked for.
    """
    if not made.signatures:
        made.compile(made.sapwood_signature)
        made.disable_compile()
    return bool(made.stats.cache_hits)


@cache
def worker(function: Callable[..., Any]) -> Any:
    """A C function of one int64 (the address of a job); loaded from the cache or compiled now."""
    with _caching() as cached:
        return numba.cfunc(types.void(types.int64), nopython=True, cache=cached)(function)


@cache
def parallel_address() -> int:
    """Address of ``GOMP_parallel`` in the OpenMP library that torch uses, or 0."""
    try:
        symbol = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (AttributeError, OSError):
        return 0
    return ctypes.cast(symbol, ctypes.c_void_p).value or 0
