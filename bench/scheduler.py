"""What a step costs beside the model: ``python -m bench.scheduler [--rows 1 16 64]``.

Scheduler, tree and core over a runner that computes nothing: rows of 1,500 shared tokens and 60 of
their own decode, a token each in a step. Milliseconds a step, medians and 99th percentiles.
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

import numpy as np

from sapwood.radix import RadixTree
from sapwood.srt.batch import Batch, Sampled
from sapwood.srt.config import SchedulerConfig
from sapwood.srt.core import Core
from sapwood.srt.memory import PageAllocator, PrefixCache
from sapwood.srt.messages import Submit
from sapwood.srt.params import SamplingParams
from sapwood.srt.scheduler import Scheduler
from sapwood.srt.stops import TokenText

VOCAB, SHARED, OWN, STEPS = 49152, 1500, 60, 300


class Nothing:
    """A runner that draws random tokens, and says how long it was asked."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self.seconds = 0.0
        self.decoding = 0  # rows of the last step, where all were of one token

    def forward(self, batch: Batch) -> None:
        """No logits."""
        single = all(row.stop - row.start == 1 for row in batch.rows)
        self.decoding = len(batch.rows) if single else 0

    def sample(self, batch: Batch, logits: Any, masks: Any = None) -> Sampled:
        """Any tokens but the end."""
        began = perf_counter()
        drawn = self._random.integers(1, VOCAB, len(batch.rows)).tolist()
        ids = [
            [token] if row.sample_from < row.stop else []
            for token, row in zip(drawn, batch.rows, strict=True)
        ]
        none: list[Any] = [None] * len(ids)
        self.seconds += perf_counter() - began
        return Sampled(ids, none, list(none), list(none))


def measured(rows: int) -> list[float]:
    """Seconds of each decoding step of so many rows."""
    runner = Nothing()
    pages = SHARED + rows * (OWN + STEPS + 64)
    scheduler = Scheduler(
        SchedulerConfig(max_running=rows),
        PrefixCache(RadixTree(1), PageAllocator(pages)),
        context_length=8192,
        eos_ids=frozenset({0}),
        text=TokenText([b"%d " % token for token in range(VOCAB)], {0}),
    )
    core = Core(scheduler, runner)  # type: ignore[arg-type]
    source = np.random.default_rng(1)
    header = source.integers(1, VOCAB, SHARED).tolist()
    for number in range(rows):
        prompt = header + source.integers(1, VOCAB, OWN).tolist()
        params = SamplingParams(temperature=0.0, max_tokens=STEPS + 40, ignore_eos=True)
        core.handle(
            Submit(rid=str(number), choice=0, prompt_ids=prompt, params=params, seed=number)
        )
    while runner.decoding < rows:
        core.step()
    taken = []
    for _ in range(STEPS):
        asked = runner.seconds
        began = perf_counter()
        core.step()
        taken.append(perf_counter() - began - (runner.seconds - asked))
    return taken


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64])
    print("| rows | p50, ms | p99, ms |\n|---|---|---|")
    for rows in parser.parse_args().rows:
        p50, p99 = np.percentile(measured(rows), [50, 99]) * 1e3
        print(f"| {rows} | {p50:.3f} | {p99:.3f} |", flush=True)


if __name__ == "__main__":
    main()
