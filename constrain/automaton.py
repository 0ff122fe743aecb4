"""Finite automata as arrays, with the exact distance from each state to the end of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]

FAR = np.iinfo(np.int32).max
"""The distance of a state from which no text ends."""


class Automaton(NamedTuple):
    """A deterministic automaton whose edges bear labels (bytes, or token ids).

    State 0 is the first. Edges of state ``s`` are ``labels[starts[s]:starts[s + 1]]``, in ascending
    order, and lead to the ``targets`` at the same places. Edges after which no text can be
    completed are left out.
    ``distance[s]`` is the least number of labels that complete a text from there.
    """

    accepts: npt.NDArray[np.bool_]
    starts: Ints
    labels: Ints
    targets: Ints
    distance: Ints

    @classmethod
    def of_table(cls, table: tuple[int, Sequence[int], bytes, bytes, bytes]) -> Automaton:
        """From the child's answer."""
        states, accepting, *arrays = table
        sources, labels, targets = (np.frombuffer(each, np.int32) for each in arrays)
        accepts = np.zeros(states, np.bool_)
        accepts[list(accepting)] = True
        distance = _distances(sources, targets, accepts)
        useful = distance[targets] < FAR
        sources, labels, targets = sources[useful], labels[useful], targets[useful]
        order = np.lexsort((labels, sources))
        starts = np.zeros(states + 1, np.int32)
        np.cumsum(np.bincount(sources, minlength=states), out=starts[1:])
        return cls(accepts, starts, labels[order], targets[order], distance)

    def edges(self, state: int) -> tuple[Ints, Ints]:
        """Labels and targets of a state's edges."""
        start, stop = self.starts[state], self.starts[state + 1]
        return self.labels[start:stop], self.targets[start:stop]

    def step(self, state: int, label: int) -> int | None:
        """The state after a label, ``None`` where there is none."""
        start, stop = int(self.starts[state]), int(self.starts[state + 1])
        at = start + int(np.searchsorted(self.labels[start:stop], label))
        return int(self.targets[at]) if at < stop and self.labels[at] == label else None

    def nearer(self, state: int) -> tuple[Ints, Ints]:
        """The edges that begin a shortest completion."""
        labels, targets = self.edges(state)
        good = self.distance[targets] == self.distance[state] - 1
        return labels[good], targets[good]


def _distances(sources: Ints, targets: Ints, accepts: npt.NDArray[np.bool_]) -> Ints:
    """Breadth-first, backwards from the states that accept."""
    states = len(accepts)
    pairs = np.unique(targets.astype(np.int64) * states + sources)
    reached, before = pairs // states, (pairs % states).astype(np.int32)
    starts = np.searchsorted(reached, np.arange(states + 1))
    distance = np.full(states, FAR, np.int32)
    border = np.flatnonzero(accepts)
    distance[border] = 0
    steps = 0
    while len(border):
        steps += 1
        found = np.concatenate([before[starts[s] : starts[s + 1]] for s in border])
        border = np.unique(found[distance[found] == FAR])
        distance[border] = steps
    return distance
