"""Up to how many rows a 4-bit product is the faster one: measured, and kept on disk.

The file lies beside the compiled kernels, with a section for each processor, number of threads and
version of torch. Two servers that measure at once overwrite each other's section with the same.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..kernels.compiled import cache_folder
from ..kernels.ops import Linear
from .stored import StoredProduct

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Row counts that are tried, until the 4-bit product is the slower one for every size."""

BYTES = 64 * 2**20
"""So much of the weights is multiplied in turn, so that they come from memory as in a step."""

REPEATS = 5

Size = tuple[int, int]
Limits = dict[Size, int]


def limits(products: Sequence[StoredProduct], folder: Path | None = None) -> tuple[Limits, bool]:
    """The most rows for each size's 4-bit product; and whether they were on disk already."""
    folder = folder or cache_folder()
    path = None if folder is None else folder / "products.json"
    here, sizes = machine(), {product.size for product in products}
    kept = {} if path is None else read(path).get(here, {})
    found = {size: kept.get(_name(size)) for size in sizes}
    known = {size: limit for size, limit in found.items() if type(limit) is int and limit >= 0}
    if len(known) == len(sizes):
        return known, True
    measured = measure(products)
    if path is not None:
        write(path, here, {_name(size): limit for size, limit in measured.items()})
    return measured, False


def machine() -> str:
    """What a figure is true for: processor, threads, and who multiplies."""
    return f"{_processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the system tells it, with family, model and stepping."""
    words = {}
    if cpuinfo.exists():
        for line in cpuinfo.read_text().split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            words[name.strip()] = value.strip()
    parts = [words.get(name, "") for name in ("model name", "cpu family", "model", "stepping")]
    return " ".join(part for part in parts if part) or platform.processor() or platform.machine()


def measure(products: Sequence[StoredProduct], rows: Iterable[int] = ROWS) -> Limits:
    """Times both forms of each size, one after the other, at more and more rows."""
    chosen = _sample(products)
    limit = dict.fromkeys((product.size for product in products), 0)
    open_sizes = set(limit)
    for count in rows:
        tried = [product for product in chosen if product.size in open_sizes]
        if not tried:
            break
        times = _times(tried, count)
        for size, (few, many) in times.items():
            if few < many:
                limit[size] = count
            else:
                open_sizes.discard(size)
    return limit


def _sample(products: Sequence[StoredProduct]) -> list[StoredProduct]:
    """Products in the order of the model up to ``BYTES`` of weights, and one of each size."""
    chosen: list[StoredProduct] = []
    total, seen = 0, set()
    for product in products:
        if total < BYTES or product.size not in seen:
            chosen.append(product)
            seen.add(product.size)
            total += product.nbytes
    return chosen


def _times(products: Sequence[StoredProduct], rows: int) -> dict[Size, tuple[float, float]]:
    """Medians of the seconds that all products of a size take, in each form."""
    inputs = {
        size: torch.randn(rows, size).bfloat16()
        for size in {product.size[1] for product in products}
    }
    spent: dict[Size, tuple[list[float], list[float]]] = {}
    for repeat in range(REPEATS + 1):
        for form in (0, 1):
            totals: dict[Size, float] = {}
            for product in products:
                linear = product.many if form else product.few
                seconds = _seconds(linear, inputs[product.size[1]])
                totals[product.size] = totals.get(product.size, 0.0) + seconds
            if repeat > 0:  # the first prepares oneDNN's kernels
                for size, total in totals.items():
                    spent.setdefault(size, ([], []))[form].append(total)
    return {
        size: (statistics.median(few), statistics.median(many))
        for size, (few, many) in spent.items()
    }


def _seconds(linear: Linear, x_TI: Tensor) -> float:
    start = time.perf_counter()
    linear(x_TI)
    return time.perf_counter() - start


def _name(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def read(path: Path) -> dict[str, Any]:
    """The file's sections; none where it cannot be read or holds something else."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, dict)}


def write(path: Path, section: str, values: dict[str, int]) -> None:
    """Adds to a section. A file that cannot be written is no harm: the next start measures."""
    sections = read(path)
    sections[section] = {**sections.get(section, {}), **values}
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(sections, indent=1, sort_keys=True))
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
