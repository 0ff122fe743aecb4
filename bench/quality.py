"""What each way to run a model does to what it says: perplexity, and distance from float32.

    python -m bench.quality [--modes bf16,stored,w8a8] [--windows 4] [--out FILE]

The text is what every machine has: docstrings of the standard library, a window of at most 1,024
tokens from each of some modules spread over the alphabet. Another version of Python has another
text, so perplexities compare within a run. Modes run one after another, each in an engine of its
own; float32 comes first, as what the others are compared to. All of them have the weights of the
same file, which may be rounded to 4 bits already: what that cost is not in these figures.

``few`` repeats the first tokens of each window in steps of ``--few-rows`` tokens. A mode that
chooses its products by the number of rows must have the same weights in all of them: it may then
differ from itself (``few-many``) by about as much as bf16 does from float32, by rounding.
"""

from __future__ import annotations

import argparse
import ast
import math
import platform
import shlex
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sapwood import Engine, SamplingParams
from sapwood.srt.checkpoint import find_model, open_checkpoint
from sapwood.srt.errors import LoadError
from sapwood.srt.quant.crossover import machine

WINDOW = 1024
MODES: dict[str, dict[str, str]] = {
    "float32": {"dtype": "float32"},
    "bf16": {"dtype": "bfloat16"},
    "stored": {"dtype": "bfloat16", "quantization": "stored"},
    "w8a8": {"dtype": "bfloat16", "quantization": "w8a8"},
}
HEAD = (
    f"{'':37}|d log p|     same   first {{few}} tokens of each window: |d log p|\n"
    "mode     perplexity  ratio to bf16 to float32    top-1"
    "      many       few  few/many  few-many to float32"
)


class Scored(NamedTuple):
    """Of all windows: log-probabilities of their tokens but the first, and the likeliest tokens."""

    logprobs: list[npt.NDArray[np.float64]]
    best: npt.NDArray[np.int64]

    def cut(self, length: int) -> npt.NDArray[np.float64]:
        """The log-probabilities of the first ``length`` tokens of each window, in one row."""
        return np.concatenate([window[: length - 1] for window in self.logprobs])


class Result(NamedTuple):
    """One mode, in steps of the default size and, over the windows' beginnings, in small ones."""

    many: Scored
    few: Scored | None


def docstrings() -> Iterator[str]:
    """The docstrings of each module that lies directly in the standard library's folder."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in the library's own sources
            tree = ast.parse(path.read_bytes())
        found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        yield "\n\n".join(text for text in found if text)


def windows(model: str | None, count: int) -> list[list[int]]:
    """Token ids of at most ``count`` windows, none shorter than ``WINDOW``."""
    tokenizer = open_checkpoint(find_model(model)).tokenizer
    encoded = (tokenizer.encode(text) for text in docstrings())
    full = [ids[:WINDOW] for ids in encoded if len(ids) >= WINDOW]
    return full[:: max(1, len(full) // count)][:count]


def score(model: str | None, texts: list[list[int]], **options: Any) -> Scored:
    """Runs all windows through an engine with these options."""
    params = SamplingParams(max_tokens=0, prompt_logprobs_from=1, prompt_logprobs_top=1)
    with Engine(model, kv_tokens=4 * WINDOW, **options) as engine:
        done = [completion.prompt_logprobs for completion in engine.generate(texts, params)]
    logprobs = [np.array([entry.logprob for entry in entries]) for entries in done]
    best = np.array([entry.top[0][0] for entries in done for entry in entries])
    return Scored(logprobs, best)


def run(mode: str, texts: list[list[int]], given: argparse.Namespace) -> Result:
    """Scores all windows in a mode, and then their beginnings in small steps."""
    many = score(given.model, texts, **MODES[mode])
    if not given.few:
        return Result(many, None)
    starts = [ids[: given.few] for ids in texts]
    small = {"max_batched_tokens": given.few_rows}
    return Result(many, score(given.model, starts, **MODES[mode], **small))


def perplexity(logprobs: npt.NDArray[np.float64]) -> float:
    return math.exp(-logprobs.mean())


def ratio(own: Scored, other: Scored) -> str:
    """Of two perplexities, with its standard error over windows."""
    pairs = zip(own.logprobs, other.logprobs, strict=True)
    differences = np.array([float((theirs - mine).mean()) for mine, theirs in pairs])
    if own is other:
        return "1"
    value = math.exp(differences.mean())
    if len(differences) == 1:
        return f"{value:.4f}"
    error = value * differences.std(ddof=1) / math.sqrt(len(differences))
    return f"{value:.4f}+-{error:.4f}"


def line(mode: str, result: Result, results: dict[str, Result], given: argparse.Namespace) -> str:
    """A row of the table."""
    own, reference = result.many, results["float32"].many
    away = np.abs(own.cut(WINDOW) - reference.cut(WINDOW)).mean()
    same = (own.best == reference.best).mean()
    to_bf16 = ratio(own, results["bf16"].many) if "bf16" in results else "-"
    shown = f"{mode:8} {perplexity(own.cut(WINDOW)):10.4f} {to_bf16:>14} {away:10.4f} {same:8.2%}"
    if result.few is None:
        return shown
    many, few = own.cut(given.few), result.few.cut(given.few)
    moved = perplexity(few) / perplexity(many)
    apart = np.abs(few - many).mean()
    away = np.abs(many - reference.cut(given.few)).mean()
    shown += f" {perplexity(many):9.4f} {perplexity(few):9.4f} {moved:9.4f}"
    return f"{shown} {apart:9.4f} {away:10.4f}"


def measure(texts: list[list[int]], given: argparse.Namespace) -> Iterator[str]:
    """Lines of the report, as they come to be known."""
    commit = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(commit, capture_output=True, text=True, check=False)
    yield f"python -m bench.quality {shlex.join(sys.argv[1:])}".rstrip()
    yield f"commit {done.stdout.strip()}, Python {platform.python_version()}"
    results: dict[str, Result] = {}
    failed: list[str] = []
    for mode in dict.fromkeys(["float32", *given.modes.split(",")]):
        try:
            results[mode] = run(mode, texts, given)
        except LoadError as error:
            failed.append(f"{mode:8} cannot run here: {error}")
    yield machine()
    tokens = len(results["float32"].many.best)
    yield f"{len(texts)} windows, {tokens} tokens scored; few: steps of {given.few_rows} tokens"
    yield HEAD.format(few=given.few)
    yield from (line(mode, result, results, given) for mode, result in results.items())
    yield from failed


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", help="default: SmolLM2-135M-Instruct, Q4_1")
    parser.add_argument("--modes", default="bf16,stored,w8a8", help=f"of {', '.join(MODES)}")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--few", type=int, default=64, help="tokens to repeat; 0: none")
    parser.add_argument("--few-rows", type=int, default=2, help="tokens in each of their steps")
    parser.add_argument("--out", type=Path, help="write the report here too")
    given = parser.parse_args()
    unknown = sorted(set(given.modes.split(",")) - set(MODES))
    if unknown:
        parser.error(f"unknown mode {unknown[0]!r}; known: {', '.join(MODES)}")
    if given.windows < 1 or not (given.few == 0 or 2 <= given.few <= WINDOW):
        parser.error(f"--windows is 1 or more, and --few is 0 or 2 to {WINDOW}")
    lines = []
    for shown in measure(windows(given.model, given.windows), given):
        print(shown, flush=True)
        lines.append(shown)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
