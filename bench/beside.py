"""What constraints that are hard to compile do to streams beside them.

    python -m bench.beside --url http://127.0.0.1:30000 [--repeat 5] [--every 0.25] [--only 0]

Eight streams run, alone and then beside requests each of which brings a constraint that no cache
has; turns alternate. Told are the streams' times between tokens, and what became of the requests.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp
import numpy as np

from .serve import send
from .workloads import workload

STREAMS, TOKENS = 8, 160
KINDS = 8


def hard_ones() -> Iterator[dict[str, Any]]:
    """Constraints, each another: huge unions, counts, expressions, nests, grammars."""
    for turn in itertools.count():
        options = [
            {
                "type": "object",
                "properties": {f"k{turn}_{at}_{key}": {"type": "string"} for key in range(20)},
            }
            for at in range(150)
        ]
        yield {"json_schema": {"anyOf": options}}
        yield {"json_schema": {"type": "string", "pattern": f"^(a|b|c{turn}){{1,900}}x{{3,900}}$"}}
        yield {"regex": f"(([a-z]{{1,40}} ){{1,40}}-{turn}){{1,40}}"}
        yield {"regex": "(a?){60}a{60}" + f"{turn}"}
        deep: dict[str, Any] = {"type": "integer", "minimum": turn}
        for _ in range(100):
            deep = {"type": "array", "items": deep, "uniqueItems": True, "minItems": 1}
        yield {"json_schema": deep}
        yield {"choice": [f"option {turn} number {at}" for at in range(8000)]}
        clashes = [{"not": {"required": [f"a{turn}_{at}"]}} for at in range(60)]
        yield {"json_schema": {"type": "object", "oneOf": clashes}}
        rules = "\n".join(f'r{at} ::= r{at + 1} r{at + 1} | "{turn}"' for at in range(200))
        yield {"ebnf": f'root ::= r0\n{rules}\nr200 ::= "x"'}


async def _beside(
    session: aiohttp.ClientSession, url: str, every: float, told: Counter[str], made: Any
) -> None:
    """Sends hard ones for as long as it is let."""
    async with asyncio.TaskGroup() as group:

        async def one(constraint: dict[str, Any]) -> None:
            body = {"prompt": "x", "max_tokens": 4, "on_budget": "cut", **constraint}
            async with session.post(url + "/v1/completions", json=body) as response:
                answer = await response.json()
                error = answer.get("error") or {}
                told[f"{response.status} {error.get('code') or ''}".strip()] += 1

        while True:
            group.create_task(one(next(made)))
            await asyncio.sleep(every)


async def run(url: str, repeat: int, every: float, only: int | None) -> None:
    """Alternates, and prints."""
    made, told = hard_ones(), Counter[str]()
    if only is not None:
        made = itertools.islice(made, only, None, KINDS)
    gaps: dict[bool, list[list[float]]] = {False: [], True: []}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        for turn in range(2 * repeat + 1):
            beside = turn % 2 == 0 and turn > 0
            loads = workload("batch", turn).loads[:STREAMS]
            streams = [
                send(session, url, "default", load.__class__(prompt=load.prompt, max_tokens=TOKENS))
                for load in loads
            ]
            other = asyncio.create_task(_beside(session, url, every, told, made))
            if not beside:
                other.cancel()
            outcomes = await asyncio.gather(*streams)
            other.cancel()
            errors = [outcome.error for outcome in outcomes if outcome.error]
            assert not errors, errors
            if turn:
                gaps[beside].append([gap for outcome in outcomes for gap in outcome.gaps])
    figures = {}
    for beside, name in ((False, "alone"), (True, "beside")):
        for share in (50, 99):
            found = [float(np.percentile(each, share)) * 1e3 for each in gaps[beside]]
            figures[name, share] = statistics.median(found)
        print(
            f"{name:7} between tokens, ms: p50 {figures[name, 50]:.1f}  p99 {figures[name, 99]:.1f}"
        )
    for share in (50, 99):
        ratio = figures["beside", share] / figures["alone", share]
        print(f"p{share} beside / alone: {ratio:.2f}")
    print("requests beside:", ", ".join(f"{told[key]} x {key}" for key in sorted(told)))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.beside")
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--every", type=float, default=0.25, help="seconds between requests")
    parser.add_argument("--only", type=int, choices=range(KINDS), help="one kind of constraint")
    given = parser.parse_args()
    asyncio.run(run(given.url, given.repeat, given.every, given.only))


if __name__ == "__main__":
    main()
