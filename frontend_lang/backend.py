"""Which runtime a program runs on."""

from __future__ import annotations

import asyncio
from typing import Any

from . import loops
from .refusal import Unsupported
from .runtime import Informs, Runtime


def runtime_of(given: Any) -> Runtime:
    """The object itself where it is a runtime, an engine as one; ``TypeError`` for others."""
    if isinstance(given, Runtime):
        return given
    if hasattr(given, "agenerate") and hasattr(given, "ascore"):
        from .engine_runtime import EngineRuntime

        return EngineRuntime(given)
    raise TypeError(
        f"{type(given).__name__} is not a runtime: it lacks one of generate, stream, score, "
        "render, flush"
    )


class Default:
    """The runtime of programs that are run without ``backend=``."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None

    def set(self, backend: Any) -> None:
        """Takes a ``Runtime`` or an ``Engine``; ``None`` unsets it."""
        self._runtime = None if backend is None else runtime_of(backend)

    def resolve(self, backend: Any) -> Runtime:
        """``backend`` if there is one; ``ValueError`` where neither is."""
        if backend is not None:
            return runtime_of(backend)
        if self._runtime is None:
            raise ValueError("no backend: pass backend=..., or call set_default_backend(...) first")
        return self._runtime


DEFAULT = Default()


def set_default_backend(backend: Any) -> None:
    """The runtime of programs that are run without ``backend=``."""
    DEFAULT.set(backend)


def flush_cache(backend: Any = None) -> bool:
    """Empties a runtime's prefix cache; ``False`` where it has none of ours."""
    return asyncio.run_coroutine_threadsafe(
        _flush(DEFAULT.resolve(backend)), loops.BACKGROUND.loop()
    ).result()


async def _flush(runtime: Runtime) -> bool:
    return await runtime.flush()


def get_server_info(backend: Any = None) -> dict[str, Any]:
    """A server's ``/server_info``; ``Unsupported`` where the runtime is none of ours."""
    runtime = DEFAULT.resolve(backend)
    if not isinstance(runtime, Informs):
        raise Unsupported(type(runtime).__name__, "get_server_info")
    return asyncio.run_coroutine_threadsafe(_info(runtime), loops.BACKGROUND.loop()).result()


async def _info(runtime: Informs) -> dict[str, Any]:
    return await runtime.info()
