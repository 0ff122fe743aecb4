"""How large the automata of an expression would be, found before anything is compiled."""

from __future__ import annotations

from .characters import Ranges, has
from .ebnf_reader import Frame, Step, closed


def is_small(first: Step, most: int) -> bool:
    """Whether a deterministic automaton over characters that looks for the expression anywhere in
    a text, as outlines-core builds one, has at most about so many states. Characters of several
    bytes count with the states within them."""
    letters = _letters(first)
    root = Frame(None, None)
    start, _ = closed([(first, root)])
    seen, todo, count = {frozenset(start)}, [start], 0
    while todo:
        places = todo.pop().values()
        count += 1 + sum(map(_within, {p.step.ranges for p in places}))
        for letter in letters:
            then, _ = closed(
                [(first, root)]
                + [(p.step.then, p.frame) for p in places if has(p.step.ranges, letter)]
            )
            key = frozenset(then)
            if key not in seen:
                if count + len(todo) >= most:
                    return False
                seen.add(key)
                todo.append(then)
    return count <= most


def _within(ranges: Ranges) -> int:
    """About how many states are within the characters of a set."""
    wide = sum(1 for _, high in ranges if high >= 128)
    return 2 * wide + 2 if wide else 0


def _letters(first: Step) -> list[int]:
    """Characters, one of each kind: no two are in the same sets of the expression."""
    sets: set[Ranges] = set()
    seen, todo = {id(first)}, [first]
    while todo:
        step = todo.pop()
        if step.ranges:
            sets.add(step.ranges)
        for each in (*step.options, step.then, step.called):
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                todo.append(each)
    ordered = sorted(sets)
    borders = sorted({b for ranges in ordered for low, high in ranges for b in (low, high + 1)})
    kinds: dict[tuple[bool, ...], int] = {}
    for code in borders:
        kinds.setdefault(tuple(has(ranges, code) for ranges in ordered), code)
    return list(kinds.values())
