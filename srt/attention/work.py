"""Cuts a step's attention into items of even size: pure numpy, no device.

Every query token sees an unbroken range of positions of its row. Some of that range may be in
groups (computed once for all of a group's rows), the rest is the row's own. Long ranges are cut
into several items, so that threads share one row's context. Cuts depend on lengths alone, never on
what else is in the step. A token with several items gets a part of each, and the parts are merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..batch import Batch, Group, Row

Ints = npt.NDArray[np.int32]

_MANY = np.iinfo(np.int32).max


class Limits(NamedTuple):
    """How large an item may be, and what a part costs in bytes read or written.

    Without ``groups`` each row reads all that it sees itself.
    """

    queries: int
    keys_few: int
    keys_many: int
    kv_bytes: int
    part_bytes: int
    groups: bool = True


class Work(NamedTuple):
    """A step's attention. ``items`` are lines of (first query, queries, first slot, slots, slots
    visible to the first query, first part or -1); see ``kernels/paged.py``."""

    items: Ints
    queries: Ints
    slots: Ints
    new_slots: Ints
    merged: Ints
    merged_starts: Ints
    merged_parts: Ints
    n_parts: int


def pays(group: Group, limits: Limits) -> bool:
    """Whether the KV bytes that a group saves are well above those of the parts it makes.

    Bytes are compared with bytes, so that no figure of one machine is built in. On one machine 2
    rows broke even at 128 shared tokens, 4 to 32 rows at 64 to 100, where this ratio is about 20.
    """
    saved = (len(group.rows) - 1) * (group.stop - group.start) * limits.kv_bytes
    return saved > 20 * len(group.rows) * limits.part_bytes


def slots_of(pages: Ints, page_size: int, start: int, stop: int) -> Ints:
    """Slots of positions ``[start, stop)``."""
    if page_size == 1:
        return pages[start:stop]
    position = np.arange(start, stop, dtype=np.int32)
    slots: Ints = pages[position // page_size] * page_size + position % page_size
    return slots


class _Draft:
    """Items as they are found; parts are numbered once every token's items are known."""

    __slots__ = ("lines", "n_queries", "n_slots", "queries", "slots")

    def __init__(self) -> None:
        self.lines: list[tuple[int, int, int, int, int]] = []
        self.queries: list[Ints] = []
        self.slots: list[Ints] = []
        self.n_queries = self.n_slots = 0

    def add_queries(self, tokens: Ints) -> int:
        """Where these tokens begin in the list of queries."""
        first = self.n_queries
        self.queries.append(tokens)
        self.n_queries += len(tokens)
        return first

    def add_slots(self, slots: Ints) -> int:
        """Where these slots begin in the list of slots."""
        first = self.n_slots
        self.slots.append(slots)
        self.n_slots += len(slots)
        return first

    def add(self, first: int, n: int, start: int, count: int, visible: int, most: int) -> None:
        """Items of n queries with slots ``[start, start + count)``, at most ``most`` slots each."""
        pieces = -(-count // most)
        cuts = [count * i // pieces for i in range(pieces + 1)]
        for a, b in pairwise(cuts):
            self.lines.append((first, n, start + a, b - a, min(visible - a, _MANY)))


def plan_work(batch: Batch, page_size: int, limits: Limits) -> Work:
    """Items for a step's rows and for those of its groups that pay."""
    draft = _Draft()
    n_tokens = np.array([row.stop - row.start for row in batch.rows])
    firsts = np.concatenate(([0], np.cumsum(n_tokens)))
    grouped: list[list[tuple[int, int]]] = [[] for _ in batch.rows]
    for group in batch.groups if limits.groups else ():
        if pays(group, limits):
            _add_group(draft, group, batch.rows, firsts, page_size, limits)
            for index in group.rows:
                grouped[index].append((group.start, group.stop))
    for row, first, ranges in zip(batch.rows, firsts[:-1], grouped, strict=True):
        _add_row(draft, row, int(first), ranges, page_size, limits)
    new = [slots_of(row.pages, page_size, row.start, row.stop) for row in batch.rows]
    return _number_parts(draft, int(firsts[-1]), np.concatenate(new))


def _add_group(
    draft: _Draft,
    group: Group,
    rows: tuple[Row, ...],
    firsts: npt.NDArray[np.int64],
    page_size: int,
    limits: Limits,
) -> None:
    tokens = np.concatenate([np.arange(firsts[i], firsts[i + 1]) for i in group.rows])
    at = draft.add_queries(tokens.astype(np.int32))
    pages = rows[group.rows[0]].pages
    start = draft.add_slots(slots_of(pages, page_size, group.start, group.stop))
    count = group.stop - group.start
    for block in range(0, len(tokens), limits.queries):
        n = min(limits.queries, len(tokens) - block)
        most = limits.keys_few if len(tokens) <= 2 * limits.queries else limits.keys_many
        draft.add(at + block, n, start, count, _MANY, most)


def _own(stop: int, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What of ``[0, stop)`` is in none of some ranges that do not overlap."""
    at = 0
    for a, b in sorted(ranges):
        if at < a:
            yield at, a
        at = b
    if at < stop:
        yield at, stop


def _add_row(
    draft: _Draft,
    row: Row,
    first_token: int,
    ranges: list[tuple[int, int]],
    page_size: int,
    limits: Limits,
) -> None:
    n = row.stop - row.start
    at = draft.add_queries(np.arange(first_token, first_token + n, dtype=np.int32))
    for a, b in _own(row.stop, ranges):
        start = draft.add_slots(slots_of(row.pages, page_size, a, b))
        for block in range(0, n, limits.queries):
            size = min(limits.queries, n - block)
            visible = row.start + block + 1 - a
            count = min(b - a, visible + size - 1)
            most = limits.keys_few if n <= 2 * limits.queries else limits.keys_many
            if count > 0:
                draft.add(at + block, size, start, count, visible, most)


def _number_parts(draft: _Draft, n_tokens: int, new_slots: Ints) -> Work:
    queries = np.concatenate(draft.queries)
    lines = np.array(draft.lines, dtype=np.int32).reshape(-1, 5)
    # One entry for each query of each item, in the order of items.
    sizes = lines[:, 1]
    ends = np.cumsum(sizes)
    within = np.arange(ends[-1], dtype=np.int32) - np.repeat(ends - sizes, sizes)
    token = queries[np.repeat(lines[:, 0], sizes) + within]
    several = np.bincount(token, minlength=n_tokens) > 1
    # An item with a token that has several items gives parts for all of its queries.
    apart = np.logical_or.reduceat(several[token], ends - sizes)
    n_parts = np.where(apart, sizes, 0)
    part = np.where(apart, np.cumsum(n_parts) - n_parts, -1)
    entry_part = np.repeat(part, sizes) + within
    chosen = np.repeat(apart, sizes)
    token, entry_part = token[chosen], entry_part[chosen]
    order = np.argsort(token, kind="stable")
    merged, counts = np.unique(token, return_counts=True)
    items = np.column_stack((lines, part.astype(np.int32)))
    heaviest = np.argsort(-(lines[:, 1].astype(np.int64) * lines[:, 3]), kind="stable")
    return Work(
        items=np.ascontiguousarray(items[heaviest]),
        queries=queries,
        slots=np.ascontiguousarray(np.concatenate(draft.slots)),
        new_slots=np.ascontiguousarray(new_slots),
        merged=merged.astype(np.int32),
        merged_starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
        merged_parts=entry_part[order].astype(np.int32),
        n_parts=int(n_parts.sum()),
    )
