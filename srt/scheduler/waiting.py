"""The waiting queue: whose turn it is."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Container, Iterator

from .task import Task

WINDOW = 256
"""Tasks of a lane, oldest first, among which the longest cached prefix is looked for."""

LOOKUPS = 16
"""Cached prefixes that are looked up in a step; of other tasks an older length is used."""


class Lane:
    """The waiting tasks of one priority and namespace, by arrival.

    ``turn`` tells when one of them was last admitted, ``number`` lanes apart.
    """

    __slots__ = ("number", "priority", "tasks", "turn")

    def __init__(self, priority: int, turn: int, number: int) -> None:
        self.priority = priority
        self.turn = turn
        self.number = number
        self.tasks: list[Task] = []


class WaitingQueue:
    """Tasks that wait, and the order in which they are to be admitted.

    Within a lane (one priority, one namespace) the longest cached prefix goes first, of equals the
    one that came first. Lanes of one priority take turns. A task that has waited ``ageing_steps``
    (A) goes before any of its lane that came later, and its lane counts as one priority higher for
    each A steps that its oldest task has waited. Hence the bound: no task of its own lane that
    arrives more than A steps after a given one, and none of a priority d higher that arrives more
    than (d + 1) * A steps after it, goes before it, but for the turns of lanes that have aged as
    much. What arrived earlier is finite, so nothing starves.

    Tasks with a leader are parked: they are in no lane until ``unpark`` puts them back in their
    place.
    """

    def __init__(self, lookup: Callable[[Task], int], ageing_steps: int) -> None:
        self._lookup = lookup
        self._ageing_steps = ageing_steps
        self._lanes: dict[tuple[int, bytes], Lane] = {}
        self._parked: dict[Task, list[Task]] = {}
        self._size = 0
        self._turns = 0
        self._opened = 0

    def __len__(self) -> int:
        """Tasks that wait, parked ones too."""
        return self._size

    def push(self, task: Task) -> None:
        """Puts a task in its place by arrival."""
        request = task.request
        key = (request.priority, request.namespace)
        lane = self._lanes.get(key)
        if lane is None:
            lane = Lane(request.priority, self._turns, self._opened)
            self._lanes[key] = lane
            self._opened += 1
        insort(lane.tasks, task, key=lambda each: each.number)
        self._size += 1

    def remove(self, task: Task) -> None:
        """Takes a waiting task out, wherever it waits."""
        if task.leader is None:
            self._leave_lane(task)
        else:
            followers = self._parked[task.leader]
            followers.remove(task)
            if not followers:
                del self._parked[task.leader]
            task.leader = None
        self._size -= 1

    def admit(self, task: Task) -> None:
        """Takes out a task that starts to run: its lane's turn is over."""
        self._turns += 1
        self._lanes[task.request.priority, task.request.namespace].turn = self._turns
        self.remove(task)

    def park(self, task: Task, leader: Task, share: int) -> None:
        """Lets a task wait until ``leader`` has computed ``share`` tokens, or leaves."""
        self._leave_lane(task)
        task.leader, task.share = leader, share
        self._parked.setdefault(leader, []).append(task)

    def unpark(self, running: Container[Task]) -> None:
        """Puts those back into their lanes whose leader is far enough or does not run any more."""
        for leader in list(self._parked):
            done = leader.request.computed if leader in running else None
            followers = self._parked.pop(leader)
            stay = [task for task in followers if done is not None and done < task.share]
            if stay:
                self._parked[leader] = stay
            for task in followers:
                if done is None or done >= task.share:
                    task.leader = None
                    self._size -= 1
                    self.push(task)

    def candidates(self, step: int) -> Iterator[Task]:
        """Tasks in the order of admission. While iterating, each may be admitted or parked."""
        self._look_up(step)
        turns = [self._turn(lane, step) for lane in self._lanes.values()]
        heapq.heapify(turns)
        orders: dict[Lane, Iterator[Task]] = {}
        while turns:
            lane = turns[0][-1]
            order = orders.get(lane)
            if order is None:
                order = orders[lane] = iter(self._ordered(lane, step))
            task = next(order, None)
            if task is None:
                heapq.heappop(turns)
                continue
            yield task
            heapq.heapreplace(turns, self._turn(lane, step))

    def _turn(self, lane: Lane, step: int) -> tuple[int, int, int, Lane]:
        """Sorts lanes: the most urgent first, then the one whose last turn is longest ago."""
        return (-self._urgency(lane, step), lane.turn, lane.number, lane)

    def _urgency(self, lane: Lane, step: int) -> int:
        if not lane.tasks:
            return lane.priority
        return lane.priority + (step - lane.tasks[0].arrived) // self._ageing_steps

    def _ordered(self, lane: Lane, step: int) -> list[Task]:
        window = lane.tasks[:WINDOW]
        aged = step - self._ageing_steps
        return sorted(
            window,
            key=lambda task: (
                (0, 0, task.number) if task.arrived <= aged else (1, -task.cached_seen, task.number)
            ),
        )

    def _look_up(self, step: int) -> None:
        """Reads the cached lengths that are oldest; none where there is no choice to make."""
        stale: list[Task] = []
        for lane in self._lanes.values():
            if len(lane.tasks) > 1:
                stale += lane.tasks[:WINDOW]
        for task in heapq.nsmallest(LOOKUPS, stale, key=_last_look):
            task.cached_seen = self._lookup(task)
            task.looked_up = step

    def _leave_lane(self, task: Task) -> None:
        key = (task.request.priority, task.request.namespace)
        lane = self._lanes[key]
        lane.tasks.remove(task)
        if not lane.tasks:
            del self._lanes[key]


def _last_look(task: Task) -> tuple[int, int]:
    return (0 if task.looked_up is None else task.looked_up + 1, task.number)
