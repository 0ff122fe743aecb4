"""The workloads by which servers are compared.

Prompts are random words that are one token each in the SmolLM2 vocabulary (with a leading space),
so an N-word prompt is N tokens. All requests are greedy and streamed; completion requests set
``ignore_eos``; chat requests carry a strict ``response_format``. ``repetition`` makes prompts
differ, so that nothing is reused by accident.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = (Path(__file__).parent / "words.txt").read_text().split()

_ORDER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["sku", "qty", "status"],
    "properties": {
        "sku": {"type": "string", "maxLength": 8},
        "qty": {"type": "integer", "minimum": 1, "maximum": 99},
        "status": {"type": "string", "enum": ["new", "paid", "sent"]},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "age", "role", "active", "orders"],
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "role": {"type": "string", "enum": ["admin", "editor", "viewer", "guest"]},
        "active": {"type": "boolean"},
        "orders": {"type": "array", "minItems": 1, "maxItems": 2, "items": _ORDER},
    },
}


@dataclass(frozen=True, kw_only=True)
class Load:
    """One request: a completion of ``prompt``, or a chat under ``schema``."""

    prompt: str
    max_tokens: int
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Requests, and how many of them are in flight at once."""

    name: str
    concurrency: int
    loads: list[Load]


def words(n: int, seed: str) -> str:
    """``n`` random words, with a leading space each: ``n`` tokens."""
    source = random.Random(seed)
    return " " + " ".join(source.choice(WORDS) for _ in range(n))


def unique_schema(index: int, seed: int) -> dict[str, Any]:
    """``SCHEMA`` with other enums and bounds, so that nothing compiled can be reused."""
    source = random.Random(f"schema{index}-{seed}")
    schema = json.loads(json.dumps(SCHEMA))
    properties = schema["properties"]
    properties["role"]["enum"] = [source.choice(WORDS) + str(k) for k in range(6)]
    status = properties["orders"]["items"]["properties"]["status"]
    status["enum"] = [source.choice(WORDS) + str(k) for k in range(4)]
    properties["age"]["maximum"] = source.randint(50, 200)
    return schema  # type: ignore[no-any-return]


def workload(name: str, repetition: int) -> Workload:
    """The named workload. ``agent_warm`` shares its header with ``agent`` of that repetition."""
    return Workload(name=name, concurrency=_CONCURRENCY[name], loads=_LOADS[name](name, repetition))


def _single(name: str, rep: int) -> list[Load]:
    return [Load(prompt=words(128, f"s{rep}-{i}"), max_tokens=128) for i in range(4)]


def _agent(name: str, rep: int) -> list[Load]:
    header = words(1500, f"head{rep}")
    tails = [words(60, f"{name}tail{rep}-{i}") for i in range(64)]
    return [Load(prompt=header + tail, max_tokens=48) for tail in tails]


def _batch(name: str, rep: int) -> list[Load]:
    return [Load(prompt=words(128, f"b{rep}-{i}"), max_tokens=64) for i in range(64)]


def _tree(name: str, rep: int) -> list[Load]:
    return [
        Load(prompt=words(600, f"g{rep}-{g}") + words(20, f"g{rep}-{g}-{b}"), max_tokens=32)
        for g in range(8)
        for b in range(8)
    ]


def _json(name: str, rep: int) -> list[Load]:
    return [
        Load(
            prompt="Write a JSON customer record for a customer who likes"
            + words(12, f"{name}{rep}-{i}")
            + ".",
            max_tokens=128,
            schema=SCHEMA if name == "json" else unique_schema(i, rep),
        )
        for i in range(32)
    ]


_LOADS = {
    "single": _single,
    "agent": _agent,
    "agent_warm": _agent,
    "batch": _batch,
    "tree": _tree,
    "json": _json,
    "json_uniq": _json,
}
_CONCURRENCY = {
    "single": 1,
    "agent": 16,
    "agent_warm": 16,
    "batch": 32,
    "tree": 16,
    "json": 8,
    "json_uniq": 8,
}
NAMES = tuple(_LOADS)
