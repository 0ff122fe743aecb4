"""Compiles all kernels ahead: ``python -m sapwood.srt.kernels.build``. Later runs load them."""

from __future__ import annotations

import time

from . import drawing, paged, rows8
from .compiled import cache_folder, ready, worker
from .cpu_ops import KERNELS

WORKERS = (
    paged.attend_bfloat16,
    paged.attend_float32,
    paged.merge_bfloat16,
    paged.merge_float32,
    rows8.quantize_rows,
    rows8.rescale_rows,
)


def build(report: bool = False) -> None:
    """Loads or compiles everything that serving on the CPU calls."""
    for kernel in (*KERNELS, *drawing.KERNELS, paged.run_job, rows8.run_rows):
        start = time.perf_counter()
        cached = ready(kernel)
        if report:
            _print(kernel.__name__, cached, start)
    for function in WORKERS:
        start = time.perf_counter()
        cached = bool(worker(function).cache_hits)
        if report:
            _print(function.__name__, cached, start)


def _print(name: str, cached: bool, start: float) -> None:
    how = "loaded" if cached else "compiled"
    print(f"{name:18} {how} in {time.perf_counter() - start:.2f} s", flush=True)


if __name__ == "__main__":
    print(f"kernels are cached in {cache_folder() or 'no folder: none can be written'}")
    build(report=True)
