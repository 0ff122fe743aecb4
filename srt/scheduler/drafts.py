"""Which rows guess what comes next, and how far: drafts that the same step verifies.

A guess changes no token: each position is drawn with its own number whatever was guessed. So all
that is decided here is what a guess may cost.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from ..config import SchedulerConfig
from .guesser import Guesser
from .step_costs import StepCosts
from .task import Task

Tokens = npt.NDArray[np.int32]


class Drafts:
    """Guesses for the rows of a step. ``auto`` asks what the step would cost with them."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.costs = StepCosts()
        self._mode = config.speculate
        self._most = config.draft_tokens

    @property
    def on(self) -> bool:
        """Whether there are any guesses at all."""
        return self._mode != "off"

    def choose(self, tasks: Collection[Task], budget: int) -> list[tuple[Task, Tokens]]:
        """Tokens to guess, no more than ``budget``, for those rows of a step that have any.

        Only rows that generate do, and with ``auto`` only in steps where all rows generate: what
        others cost is not known.
        """
        rows = [task for task in tasks if task.todo == 1]
        if self._mode == "auto" and len(rows) < len(tasks):
            return []
        if not rows or budget <= 0 or not self._may_pay(len(rows), budget):
            return []
        offers = [offer for offer in map(self._offer, rows) if offer is not None]
        least = 0.0
        if self._mode == "auto" and offers:
            least = self._threshold(len(rows), [c for _, _, chances in offers for c in chances])
        chosen = []
        for task, ids, chances in offers:
            count = min(sum(chance >= least for chance in chances), budget)
            if count:
                budget -= count
                chosen.append((task, ids[:count]))
        return chosen

    def learn(self, task: Task, drafted: int, right: int) -> None:
        """Takes in how a row's draft ended."""
        assert task.guesser is not None
        task.guesser.learn(drafted, right)
        task.guesser.rested = 0

    def _offer(self, task: Task) -> tuple[Task, Tokens, list[float]] | None:
        """What a row could guess, with the chances."""
        request = task.request
        most = min(self._most, task.end - request.length - 1)
        if request.matcher is not None or most <= 0:
            return None
        guesser = task.guesser
        if guesser is None:
            guesser = task.guesser = Guesser()
        guesser.index.add(request.tokens)
        ids = guesser.index.draft(request.tokens, most)
        ids = ids[: _before(ids.tolist(), request.stop_ids)]
        chances = guesser.chances(len(ids)) if len(ids) else []
        return (task, ids, chances) if chances else None

    def _may_pay(self, rows: int, budget: int) -> bool:
        """Whether guesses would pay if all were right."""
        most = min(rows * self._most, budget)
        return self._mode != "auto" or self._best(rows, np.ones(most)) > 0

    def _threshold(self, rows: int, chances: list[float]) -> float:
        """The least chance that is worth its place in the step; above 1 where none is."""
        sorted_chances = np.sort(chances)[::-1]
        best = self._best(rows, sorted_chances)
        return float(sorted_chances[best - 1]) if best else 2.0

    def _best(self, rows: int, chances: npt.NDArray[np.float64]) -> int:
        """How many guesses, the likeliest first, give most tokens a second."""
        gain = rows + np.concatenate(([0.0], np.cumsum(chances)))
        seconds = self.costs.of(rows + np.arange(len(gain)))
        return int(np.argmax(gain / seconds))


def _before(ids: list[int], ends: frozenset[int]) -> int:
    """How many come before the first that would end the sample: nothing is drawn after that."""
    return next((place for place, token in enumerate(ids) if token in ends), len(ids))
