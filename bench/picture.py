"""A picture of percentiles: one panel for each workload, one line for each server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10

POINTS = ("p50", "p90", "p99")
COLORS = ("#1b7837", "#762a83", "#e08214", "#2166ac", "#b2182b", "#666666")
WIDTH, HEIGHT, GAP = 220, 150, 46

Panels = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Milliseconds by workload, server and percentile."""


def svg(titles: Sequence[str], rows: Sequence[Panels]) -> str:
    """Rows of panels under their titles, on one logarithmic scale for each row."""
    servers = list(dict.fromkeys(name for row in rows for panel in row.values() for name in panel))
    columns = max(len(row) for row in rows)
    width, height = columns * (WIDTH + GAP) + GAP, len(rows) * (HEIGHT + 2 * GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for at, name in enumerate(servers):
        x = GAP + 130 * at
        parts.append(f'<rect x="{x}" y="12" width="10" height="10" fill="{_color(at)}"/>')
        parts.append(f'<text x="{x + 14}" y="21">{escape(name)}</text>')
    for number, (title, row) in enumerate(zip(titles, rows, strict=True)):
        top = GAP + number * (HEIGHT + 2 * GAP)
        parts.append(f'<text x="{GAP}" y="{top}" font-weight="bold">{escape(title)}</text>')
        parts += _panels(row, servers, top + 28)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _color(at: int) -> str:
    return COLORS[at % len(COLORS)]


def _panels(row: Panels, servers: Sequence[str], top: int) -> list[str]:
    values = [v for panel in row.values() for line in panel.values() for v in line.values() if v]
    if not values:
        return []
    low, high = log10(min(values)) - 0.1, log10(max(values)) + 0.1
    parts = []
    for column, (workload, panel) in enumerate(row.items()):
        left = GAP + column * (WIDTH + GAP)

        def at(point: str, value: float, left: int = left) -> tuple[float, float]:
            x = left + (POINTS.index(point) + 0.5) * WIDTH / len(POINTS)
            return x, top + HEIGHT * (high - log10(value)) / (high - low)

        parts.append(
            f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
            'stroke="#ccc"/>'
        )
        parts.append(f'<text x="{left}" y="{top - 6}">{escape(workload)}</text>')
        for point in POINTS:
            x = at(point, 10**low)[0]
            parts.append(
                f'<text x="{x:.0f}" y="{top + HEIGHT + 14}" text-anchor="middle">{point}</text>'
            )
        for name, line in panel.items():
            color = _color(servers.index(name))
            places = [at(point, line[point]) for point in POINTS if line.get(point)]
            path = " ".join(f"{x:.0f},{y:.0f}" for x, y in places)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{color}"/>')
            for (x, y), point in zip(places, (p for p in POINTS if line.get(p)), strict=True):
                parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{color}"/>')
                parts.append(
                    f'<text x="{x + 5:.0f}" y="{y - 4:.0f}" fill="{color}" font-size="9">'
                    f"{line[point]:.3g}</text>"
                )
    return parts
