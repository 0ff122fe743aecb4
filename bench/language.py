"""What the language costs over direct calls: per ``gen``, and on branches that share prefixes.

    python -m bench.language                                  # an engine in this process
    python -m bench.language --url http://127.0.0.1:30000     # a server; direct calls are httpx's

``gen``: 64 states at once, 8 ``gen`` of one token each, one after the other; the same requests
directly. ``branches``: 8 groups of 8 branches, 600 tokens of prefix a group, 16 tokens each; the
same requests directly, all at once. Runs alternate; figures are medians.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import sapwood as sw

from .workloads import WORDS

STATES, GENS = 64, 8
GROUPS, BRANCHES, PREFIX, OUTPUT = 8, 8, 600, 16

Send = Callable[[str, int], Awaitable[str]]
"""A prompt's text and a number of tokens to the text that follows."""


class Target(NamedTuple):
    """What is measured: a runtime, direct calls to the same, and its count of computed tokens."""

    runtime: Any
    send: Send
    computed: Callable[[], int]


@sw.function
async def gens(s: sw.State, start: str) -> None:
    s += start
    for at in range(GENS):
        s += sw.gen(f"x{at}", max_tokens=1, ignore_eos=True)
        await s.aget(f"x{at}")
        s += " and"


async def gens_directly(send: Send, start: str) -> None:
    text = start
    for _ in range(GENS):
        text += await send(text, 1) + " and"


@sw.function
async def branches(s: sw.State, prefix: str) -> None:
    s += prefix
    for at, branch in enumerate(s.fork(BRANCHES)):
        branch += f" {at}" + sw.gen("x", max_tokens=OUTPUT, ignore_eos=True)


async def branches_directly(send: Send, prefix: str) -> None:
    await asyncio.gather(*(send(f"{prefix} {at}", OUTPUT) for at in range(BRANCHES)))


async def compare(target: Target, name: str, repeat: int) -> None:
    """Alternates the language and direct calls, each on prompts that are new."""
    rng = random.Random(name)
    count, length = (STATES, 8) if name == "gen" else (GROUPS, PREFIX)
    program, directly = (gens, gens_directly) if name == "gen" else (branches, branches_directly)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    computed: dict[bool, int] = {}
    for turn in range(2 * (repeat + 1)):
        ours = turn % 2 == 0
        starts = [" ".join(rng.choices(WORDS, k=length)) for _ in range(count)]
        before, began = target.computed(), time.perf_counter()
        if ours:
            runs = [program.arun(s, backend=target.runtime, temperature=0.0) for s in starts]
            await asyncio.gather(*runs)
        else:
            await asyncio.gather(*(directly(target.send, start) for start in starts))
        if turn > 1:
            seconds[ours].append(time.perf_counter() - began)
        computed[ours] = target.computed() - before
    mine, plain = (statistics.median(seconds[ours]) for ours in (True, False))
    requests = STATES * GENS if name == "gen" else GROUPS * BRANCHES
    print(
        f"{name}: {mine:.3f} s, directly {plain:.3f} s: {100 * (mine / plain - 1):+.1f} %, "
        f"{1e3 * (mine - plain) / requests:+.3f} ms a request; "
        f"prompt tokens computed: {computed[True]}, directly {computed[False]}"
    )


def of_engine(engine: sw.Engine) -> Target:
    """An engine in this process."""

    async def send(text: str, tokens: int) -> str:
        params = sw.SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
        done = await engine.agenerate(text, params)
        return str(done.text)

    return Target(engine, send, lambda: engine.stats.computed_prompt_tokens)


def of_server(url: str) -> Target:
    """A server; what it computed is read from its metrics."""
    import httpx

    client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None))

    async def send(text: str, tokens: int) -> str:
        body = {"prompt": text, "max_tokens": tokens, "temperature": 0.0, "ignore_eos": True}
        reply = await client.post(url + "/v1/completions", json=body)
        return str(reply.raise_for_status().json()["choices"][0]["text"])

    def computed() -> int:
        lines = httpx.get(url + "/metrics").text.splitlines()
        name = "sapwood_prefix_misses_tokens_total "
        return int(float(next(line for line in lines if line.startswith(name)).split()[1]))

    return Target(sw.Server(url), send, computed)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.language")
    parser.add_argument("--url")
    parser.add_argument("--model")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()

    async def both(target: Target) -> None:
        for name in ("gen", "branches"):
            await compare(target, name, given.repeat)

    if given.url:
        asyncio.run(both(of_server(given.url)))
        return
    with sw.Engine(given.model) as engine:
        asyncio.run(both(of_engine(engine)))


if __name__ == "__main__":
    main()
