"""Sets of characters as ranges of code points."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from .automaton import Automaton

Ranges = tuple[tuple[int, int], ...]
"""Ranges of code points, ends included, sorted and apart."""

ALL: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
"""All characters: surrogates are none."""


def has(ranges: Ranges, code: int) -> bool:
    """Whether a character is among them."""
    at = bisect_right(ranges, (code, 0x110000)) - 1
    return at >= 0 and code <= ranges[at][1]


def normalised(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges sorted and joined, without surrogates."""
    split = [
        (max(low, first), min(high, last))
        for low, high in ranges
        for first, last in ALL
        if max(low, first) <= min(high, last)
    ]
    return _joined(split)


def complement(ranges: Ranges) -> Ranges:
    """All other characters."""
    found, at = [], 0
    for low, high in ranges:
        if low > at:
            found.append((at, low - 1))
        at = high + 1
    return normalised([*found, (at, 0x10FFFF)] if at <= 0x10FFFF else found)


def characters(automaton: Automaton) -> Ranges:
    """The characters whose UTF-8 an automaton over bytes accepts; it must accept nothing else."""
    rests: dict[int, Ranges] = {}

    def rest(state: int) -> Ranges:
        """What the continuation bytes from a state on stand for."""
        known = rests.get(state)
        if known is None:
            shift = 6 * (int(automaton.distance[state]) - 1)
            labels, targets = automaton.edges(state)
            known = rests[state] = _joined(
                (((int(label) & 0x3F) << shift) + low, ((int(label) & 0x3F) << shift) + high)
                for label, target in zip(labels, targets, strict=True)
                for low, high in (rest(int(target)) if shift else ((0, 0),))
            )
        return known

    found = []
    for label, target in zip(*automaton.edges(0), strict=True):
        lead = int(label)
        more = 0 if lead < 0x80 else 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        base = lead if not more else (lead & (0x3F >> more)) << 6 * more
        inner = rest(int(target)) if more else ((0, 0),)
        found += [(base + low, base + high) for low, high in inner]
    return _joined(found)


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)
