"""The command around ``batch``: flags, progress, exit codes."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sapwood.batch import Answer, EngineTarget, Output, ServerTarget, read_lines, run
from sapwood.srt.errors import UsageError


class Bar:
    """How far a run is, on standard error where that is a terminal."""

    def __init__(self, total: int, done: int) -> None:
        self._bar = tqdm(
            total=total, initial=done, unit="line", disable=not sys.stderr.isatty(), smoothing=0.1
        )
        self._began = time.monotonic()
        self.tokens = self._prompt = self._cached = 0

    def see(self, answer: Answer) -> None:
        """Counts an answer."""
        usage = answer.body.get("usage")
        if isinstance(usage, dict):
            self.tokens += _count(usage.get("completion_tokens"))
            self._prompt += _count(usage.get("prompt_tokens"))
            details = usage.get("prompt_tokens_details")
            self._cached += _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
        self._bar.update()
        if not self._bar.disable:
            self._bar.set_postfix_str(self.summary, refresh=False)

    @property
    def summary(self) -> str:
        """Tokens a second, and the share of prompt tokens that were in the cache."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        share = self._cached / self._prompt if self._prompt else 0.0
        return f"{self.tokens / seconds:.0f} tok/s, {share:.0%} cached"

    def close(self) -> None:
        """Leaves the bar as it is."""
        self._bar.close()


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def batch(given: argparse.Namespace, open_engine: Callable[[argparse.Namespace], Any]) -> int:
    """Runs ``sapwood batch``: 0 where every line has a good answer, 1 where one has not."""
    if given.concurrency < 1:
        raise UsageError(f"--concurrency is {given.concurrency}; it must be 1 or more")
    source = Path(given.input)
    total = _lines(source)
    output = Output(Path(given.output))
    try:
        bar = Bar(total, len(output.done))
        try:
            left = _run(given, open_engine, source, output, bar)
        finally:
            bar.close()
    finally:
        output.close()
    done = f"{len(output.done)} of {total} lines are answered, {output.failed} of them with errors"
    print(f"{done}; {bar.tokens} tokens, {bar.summary}", file=sys.stderr)
    if left:
        print(f"{left} lines could not be answered now: run the same again", file=sys.stderr)
    return int(bool(left or output.failed))


def _lines(source: Path) -> int:
    try:
        with source.open("rb") as file:
            return sum(1 for _ in read_lines(file))
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror or error}") from error


def _run(
    given: argparse.Namespace,
    open_engine: Callable[[argparse.Namespace], Any],
    source: Path,
    output: Output,
    bar: Bar,
) -> int:
    if given.server is None:
        with open_engine(given) as engine:
            return asyncio.run(run(source, output, EngineTarget(engine), bar, given.concurrency))
    return asyncio.run(_served(given, source, output, bar))


async def _served(given: argparse.Namespace, source: Path, output: Output, bar: Bar) -> int:
    target = ServerTarget(given.server, given.api_key, given.concurrency)
    try:
        return await run(source, output, target, bar, given.concurrency)
    finally:
        await target.close()
