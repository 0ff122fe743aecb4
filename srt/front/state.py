"""What the routes of a server share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ..config import FrontConfig
from ..errors import RequestError
from ..metrics import Metrics
from .intake import Intake
from .journal import Failure, Journal
from .token_names import TokenNames

B = TypeVar("B")
R = TypeVar("R")


class Front:
    """All that the routes share. Whoever watches the worker sets ``ready``, and calls ``fail``.

    ``info`` is shown by ``/server_info``.
    """

    def __init__(
        self,
        intake: Intake,
        journal: Journal,
        metrics: Metrics,
        config: FrontConfig,
        *,
        threads: int = 2,
        info: Mapping[str, Any] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.intake = intake
        self.journal = journal
        self.metrics = metrics
        self.config = config
        self.names = TokenNames(intake.tokenizer)
        self.info = dict(info or {})
        self.now = now
        self.ready = False
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="intake")

    @property
    def dead(self) -> Failure | None:
        """Why nothing can be generated any more."""
        return self.journal.failure

    def fail(self, message: str, code: str = "worker_failed") -> None:
        """Ends what is in flight with an error, and refuses what comes."""
        self.ready = False
        self.journal.fail_all(message, code=code)

    def check_ready(self) -> None:
        """``RequestError`` 503 unless a token can be generated."""
        if self.dead is not None:
            raise self.dead.error()
        if not self.ready:
            raise RequestError("the server is starting", code="starting", status=503)

    async def in_thread(self, work: Callable[[B], R], body: B) -> R:
        """Runs an intake's method beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, body)

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
