"""Runs the programs on an engine or a server.

    python -m bench.programs                          # an engine of the default model
    python -m bench.programs --url http://127.0.0.1:30000 --out bench/results/mine.json

Greedy. Each task runs ``--repeat`` times on inputs of its own; the first is a warm-up. Tokens are
those that ``gen`` reports; what ``select`` scores is not among them.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sapwood as sw

from . import TASKS
from .counting import Counting, Counts
from .task import Task


def measure(task: Task, backend: Any, repeat: int) -> dict[str, Any]:
    """Counts of one run, and the median of the runs' seconds."""
    seconds = []
    counts = Counts()
    for number in range(repeat + 1):
        runtime = Counting(backend)
        rng = random.Random(f"{task.name} {number}")
        items = task.items(rng, task.count)
        start = time.perf_counter()
        task.program.run_batch(items, backend=runtime, temperature=0.0, on_error="raise")
        if number:
            seconds.append(time.perf_counter() - start)
            counts = runtime.counts
    return {"task": task.name, **asdict(counts), "seconds": round(statistics.median(seconds), 3)}


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    head = (
        f"{'task':20} {'gen':>5} {'select':>6} {'prompt':>8} {'cached':>8} {'output':>7} {'s':>8}"
    )
    lines = [
        f"{row['task']:20} {row['gens']:5} {row['selects']:6} {row['prompt']:8} {row['cached']:8} "
        f"{row['output']:7} {row['seconds']:8.2f}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.programs")
    parser.add_argument("tasks", nargs="*", metavar="task", help=", ".join(TASKS))
    parser.add_argument("--url", help="a server; without it an engine in this process")
    parser.add_argument("--model", help="of the engine")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    unknown = [name for name in given.tasks if name not in TASKS]
    if unknown:
        parser.error(f"no task {unknown[0]!r}; there are {', '.join(TASKS)}")
    chosen = [TASKS[name] for name in given.tasks or TASKS]
    backend = sw.Server(given.url) if given.url else sw.Engine(given.model)
    try:
        rows = [measure(task, backend, given.repeat) for task in chosen]
    finally:
        backend.close() if isinstance(backend, sw.Server) else backend.shutdown()
    print(table(rows))
    if given.out:
        told = {"command": sys.argv, "commit": _commit(), "machine": platform.platform()}
        given.out.write_text(json.dumps({**told, "rows": rows}, indent=1) + "\n")


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
