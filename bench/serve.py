"""Load generator for any OpenAI-compatible server.

    python -m bench.serve --url http://127.0.0.1:30000 agent batch single --repeat 3 --out run.json

Several ``--url NAME=URL`` are measured in turns, each repetition on one after the other, and their
rates told as ratios. ``--picture`` draws the percentiles of the times.

Closed loop by default: as many requests in flight as the workload says. ``--rate R`` makes it open:
requests start at the times of a Poisson process of R a second, whatever the server does. The first
repetition of each workload is a warm-up and is not counted. Output tokens are those of the server's
``usage``; times are taken where the client reads them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import re
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from .picture import svg
from .workloads import NAMES, Load, Workload, workload


@dataclass(kw_only=True)
class Outcome:
    """What one request saw: seconds since its start, tokens as the server counts them."""

    first: float = 0.0
    total: float = 0.0
    gaps: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None


def body_of(load: Load, model: str) -> tuple[str, dict[str, Any]]:
    """The route and the body of a request."""
    common = {
        "model": model,
        "max_tokens": load.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if load.schema is None:
        return "/v1/completions", {**common, "prompt": load.prompt, "ignore_eos": True}
    schema = {"name": "record", "strict": True, "schema": load.schema}
    return "/v1/chat/completions", {
        **common,
        "messages": [{"role": "user", "content": load.prompt}],
        "response_format": {"type": "json_schema", "json_schema": schema},
    }


async def send(session: aiohttp.ClientSession, url: str, model: str, load: Load) -> Outcome:
    """Runs one request to its end."""
    route, body = body_of(load, model)
    outcome = Outcome()
    start = last = time.perf_counter()
    async with session.post(url + route, json=body) as response:
        if response.status != 200:
            outcome.error = f"{response.status}: {(await response.text())[:300]}"
            return outcome
        async for line in response.content:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            now = time.perf_counter()
            frame = json.loads(line[6:])
            if "error" in frame:
                outcome.error = str(frame["error"])
            if frame.get("choices") and _has_text(frame["choices"][0]):
                if outcome.first:
                    outcome.gaps.append(now - last)
                else:
                    outcome.first = now - start
                last = now
            if frame.get("usage"):
                _count(outcome, frame["usage"])
    outcome.total = time.perf_counter() - start
    return outcome


def _has_text(choice: dict[str, Any]) -> bool:
    return bool(choice.get("text") or choice.get("delta", {}).get("content"))


def _count(outcome: Outcome, usage: dict[str, Any]) -> None:
    outcome.prompt_tokens = usage["prompt_tokens"]
    outcome.output_tokens = usage["completion_tokens"]
    outcome.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


async def closed_loop(
    session: aiohttp.ClientSession, url: str, model: str, work: Workload
) -> list[Outcome]:
    """Keeps ``work.concurrency`` requests in flight."""
    queue = list(reversed(work.loads))
    outcomes: list[Outcome] = []

    async def client() -> None:
        while queue:
            outcomes.append(await send(session, url, model, queue.pop()))

    await asyncio.gather(*(client() for _ in range(work.concurrency)))
    return outcomes


async def open_loop(
    session: aiohttp.ClientSession, url: str, model: str, work: Workload, rate: float
) -> list[Outcome]:
    """Starts requests at random times, ``rate`` a second on average."""
    source = random.Random(0)
    tasks = []
    for load in work.loads:
        tasks.append(asyncio.create_task(send(session, url, model, load)))
        await asyncio.sleep(source.expovariate(rate))
    return list(await asyncio.gather(*tasks))


def percentiles(values: list[float]) -> dict[str, float]:
    """p50, p90 and p99 in milliseconds."""
    if not values:
        return {}
    ordered = sorted(values)
    return {
        f"p{p}": 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))]
        for p in (50, 90, 99)
    }


def summarise(name: str, outcomes: list[Outcome], seconds: float) -> dict[str, Any]:
    """One repetition's figures."""
    good = [o for o in outcomes if o.error is None]
    output = sum(o.output_tokens for o in good)
    return {
        "workload": name,
        "requests": len(outcomes),
        "errors": [o.error for o in outcomes if o.error is not None][:3],
        "seconds": seconds,
        "output_tokens": output,
        "tokens_per_second": output / seconds,
        "prompt_tokens": sum(o.prompt_tokens for o in good),
        "cached_tokens": sum(o.cached_tokens for o in good),
        "ttft_ms": percentiles([o.first for o in good if o.first]),
        "inter_token_ms": percentiles([gap for o in good for gap in o.gaps]),
    }


async def repetition(
    args: argparse.Namespace, server: Server, name: str, rep: int
) -> dict[str, Any]:
    """Runs a workload once against a server."""
    work = workload(name, rep)
    timeout = aiohttp.ClientTimeout(total=args.timeout)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        before = await passes(session, server.url)
        start = time.perf_counter()
        if args.rate:
            outcomes = await open_loop(session, server.url, server.model, work, args.rate)
        else:
            outcomes = await closed_loop(session, server.url, server.model, work)
        figures = summarise(name, outcomes, time.perf_counter() - start)
        after = await passes(session, server.url)
        if before is not None and after is not None:
            figures["passes_per_token"] = (after - before) / max(1, figures["output_tokens"])
        return {"server": server.name, **figures}


async def passes(session: aiohttp.ClientSession, url: str) -> float | None:
    """Tokens for which a forward pass was needed: all but those that a grammar forced.

    ``None`` where the server does not tell.
    """
    async with session.get(url + "/metrics") as response:
        told = await response.text() if response.status == 200 else ""
    found = dict(re.findall(r"^sapwood_(output|forced)_tokens_total (\S+)$", told, re.MULTILINE))
    return float(found["output"]) - float(found["forced"]) if len(found) == 2 else None


class Server(NamedTuple):
    """Where to send requests, and what to call it."""

    name: str
    url: str
    model: str

    @classmethod
    def of(cls, said: str) -> Server:
        """From ``NAME=URL`` or ``URL``."""
        name, _, url = said.rpartition("=")
        return cls(name or url, url, asyncio.run(served_model(url)))


async def served_model(url: str) -> str:
    """The name of the first model that the server lists."""
    async with aiohttp.ClientSession() as session, session.get(url + "/v1/models") as response:
        return str((await response.json())["data"][0]["id"])


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "processor": next((ln.split(":")[1].strip() for ln in lines if "model name" in ln), ""),
        "family": next((ln.split(":")[1].strip() for ln in lines if "cpu family" in ln), ""),
        "cores": sum(line.startswith("processor") for line in lines),
        "features": [f for f in ("amx_bf16", "avx512_bf16", "avx512_vnni") if f in flags],
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Medians over the counted repetitions, one line for each workload and server."""
    lines = [
        "| workload | server | tok/s | of the first's | TTFT p50 ms | inter-token p50/p99 ms "
        "| cached | passes/token | errors |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["workload"] for row in rows):
        first = None
        for server in dict.fromkeys(row["server"] for row in rows):
            own = [r for r in rows if r["workload"] == name and r["server"] == server]
            if not own:
                continue
            speed = statistics.median(row["tokens_per_second"] for row in own)
            first = first or speed
            cached = sum(r["cached_tokens"] for r in own)
            prompt = max(1, sum(r["prompt_tokens"] for r in own))
            errors = sum(len(row["errors"]) for row in own)
            lines.append(
                f"| {name} | {server} | {speed:.0f} | {speed / max(first, 1e-9):.2f} "
                f"| {_median(own, 'ttft_ms', 'p50'):.0f} "
                f"| {_median(own, 'inter_token_ms', 'p50'):.1f} / "
                f"{_median(own, 'inter_token_ms', 'p99'):.1f} "
                f"| {cached / prompt:.0%} | {_passes(own)} | {errors} |"
            )
    return "\n".join(lines)


def _passes(rows: list[dict[str, Any]]) -> str:
    told = [row["passes_per_token"] for row in rows if "passes_per_token" in row]
    return f"{statistics.median(told):.2f}" if told else ""


def _median(rows: list[dict[str, Any]], what: str, point: str) -> float:
    return statistics.median(row[what].get(point, 0) for row in rows)


def picture(rows: list[dict[str, Any]]) -> str:
    """Percentiles of the time to the first token and between tokens."""
    panels: list[dict[str, dict[str, dict[str, float]]]] = []
    for what in ("ttft_ms", "inter_token_ms"):
        panel: dict[str, dict[str, dict[str, float]]] = {}
        for row in rows:
            own = [r for r in rows if (r["workload"], r["server"]) == _place(row)]
            line = {point: _median(own, what, point) for point in ("p50", "p90", "p99")}
            panel.setdefault(row["workload"], {})[row["server"]] = line
        panels.append(panel)
    return svg(["time to first token, ms", "time between tokens, ms"], panels)


def _place(row: dict[str, Any]) -> tuple[str, str]:
    return row["workload"], row["server"]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("workloads", nargs="*", default=["single", "batch", "agent"])
    parser.add_argument(
        "--url", action="append", metavar="[NAME=]URL", help="may be given several times"
    )
    parser.add_argument("--repeat", type=int, default=3, help="counted repetitions")
    parser.add_argument("--no-warm-up", action="store_true")
    parser.add_argument("--rate", type=float, default=0.0, help="open loop: requests a second")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for a repetition")
    parser.add_argument("--label", default="", help="what is being measured, for the result file")
    parser.add_argument("--out", type=Path, help="write all figures here as JSON")
    parser.add_argument("--picture", type=Path, help="write the percentiles here as SVG")
    args = parser.parse_args()
    unknown = sorted(set(args.workloads) - set(NAMES))
    if unknown:
        parser.error(f"unknown workload {unknown[0]!r}; known: {', '.join(NAMES)}")
    servers = [Server.of(said) for said in args.url or ["http://127.0.0.1:30000"]]
    rows: list[dict[str, Any]] = []
    for name in args.workloads:
        first = 0 if args.no_warm_up or name == "agent_warm" else -1
        for rep in range(first, args.repeat):
            for server in servers:
                row = asyncio.run(repetition(args, server, name, rep))
                if rep >= 0:
                    rows.append(row)
                    rate = f"{row['tokens_per_second']:.1f} tok/s"
                    print(f"{name} {rep} {server.name}: {rate}", flush=True)
    print(table(rows))
    if args.picture:
        args.picture.write_text(picture(rows))
    if args.out:
        head = {"label": args.label, "servers": [s._asdict() for s in servers]}
        said = {"arguments": vars(args), "machine": machine()}
        args.out.write_text(
            json.dumps({**head, **said, "rows": rows}, indent=1, default=str) + "\n"
        )


if __name__ == "__main__":
    main()
