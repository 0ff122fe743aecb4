"""A benchmark: a program, and the inputs that it is run on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sapwood as sw

from ..workloads import WORDS


@dataclass(frozen=True, kw_only=True)
class Task:
    """``items(seed, count)`` makes inputs; another seed makes others that share nothing."""

    name: str
    program: sw.Program[..., Any]
    items: Callable[[random.Random, int], list[dict[str, Any]]]
    count: int


def words(rng: random.Random, count: int) -> str:
    """A text of random words of about a token each."""
    return " ".join(rng.choices(WORDS, k=count))
