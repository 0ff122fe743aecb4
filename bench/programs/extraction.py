"""Extraction of JSON from documents, under one schema."""

from __future__ import annotations

import random
from typing import Any

import sapwood as sw

from ..workloads import SCHEMA
from .task import Task, words


@sw.function
def program(s: sw.State, document: str) -> Any:
    s += sw.system("Extract the record from the document as JSON.")
    s += sw.user(document)
    s += sw.assistant(sw.gen("record", json_schema=SCHEMA, max_tokens=128))
    return s.parsed("record")


def items(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [{"document": words(rng, 120)} for _ in range(count)]


TASK = Task(name="JSON extraction", program=program, items=items, count=8)
