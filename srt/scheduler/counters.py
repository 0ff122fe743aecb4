"""What the scheduler counts."""

from __future__ import annotations


class Counters:
    """Totals since the start.

    ``computed_prompt`` counts prompt tokens each time that they are computed, after a push-back
    again; ``cached_prompt`` those that a request found in the cache and never computed.
    ``drafted`` tokens were computed on a guess, ``accepted`` of them became output.
    """

    __slots__ = (
        "accepted",
        "cached_prompt",
        "computed_prompt",
        "drafted",
        "outputs",
        "pushed_back",
        "steps",
    )

    def __init__(self) -> None:
        self.steps = 0
        self.computed_prompt = 0
        self.cached_prompt = 0
        self.outputs = 0
        self.pushed_back = 0
        self.drafted = 0
        self.accepted = 0
