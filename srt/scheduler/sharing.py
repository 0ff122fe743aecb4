"""Prefixes in flight: which running row is computing what a waiting task needs next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .task import Task

WORTH_WAITING = 16
"""Tokens that a row must compute for another to wait: a few (a start token, a role's name) are
sooner computed twice."""


class Leader(NamedTuple):
    """A running task, and the number of tokens, whole pages, that it computes for another."""

    task: Task
    share: int


def find_leader(task: Task, cached: int, running: Iterable[Task], page_size: int) -> Leader | None:
    """The row that computes the page after the first ``cached`` tokens of ``task``, if any does.

    Only rows of its namespace that still fill in what they came with count; of several the one
    that shares most with the task.
    """
    best: Leader | None = None
    request = task.request
    for row in running:
        if not row.filling or row.request.namespace != request.namespace:
            continue
        most = min(task.match_limit, row.known)
        share = common_length(request.tokens[:most], row.request.tokens[:most])
        share -= share % page_size
        if share <= max(cached, row.request.computed) or share - row.found < WORTH_WAITING:
            continue
        if best is None or share > best.share:
            best = Leader(row, share)
    return best


def common_length(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> int:
    """Number of leading elements that two arrays of one length have in common."""
    if not len(a) or a[0] != b[0]:
        return 0
    differs = a != b
    first = int(differs.argmax())
    return first if differs[first] else len(a)
