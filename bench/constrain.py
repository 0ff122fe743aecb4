"""Time to the first mask, and of each mask, over the schemas of a file.

    python -m bench.constrain FILE.jsonl[.gz] [--model MODEL] [--limit N]

Each valid instance is fed token by token, as ``sapwood schemas check`` does. Refused schemas are
counted and not timed.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from sapwood.constrain.grammar import Compiler
from sapwood.constrain.order import in_schema_order
from sapwood.constrain.refusal import Refusal
from sapwood.srt.checkpoint import find_model, open_checkpoint


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--limit", type=int, default=None)
    given = parser.parse_args()
    checkpoint = open_checkpoint(find_model(given.model))
    tokenizer, vocabulary = checkpoint.tokenizer, checkpoint.vocabulary

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_bos=False, control=False)

    compiler = Compiler(vocabulary, encode)
    opened = gzip.open if given.file.suffix == ".gz" else open
    with opened(given.file, "rt") as file:
        entries = [json.loads(line) for line in file][: given.limit]
    row = np.zeros((vocabulary.size + 31) // 32, np.int32)
    first: list[float] = []
    fills: list[float] = []
    steps: list[float] = []
    refused = 0
    for entry in entries:
        start = perf_counter()
        try:
            grammar = compiler.json_schema(entry["schema"])
        except Refusal:
            refused += 1
            continue
        grammar.matcher().fill(row)
        first.append(perf_counter() - start)
        for test in entry["tests"]:
            matcher = grammar.matcher()
            if not test["valid"]:
                continue
            text = json.dumps(in_schema_order(test["data"], entry["schema"]), ensure_ascii=False)
            for token in encode(text):
                start = perf_counter()
                matcher.fill(row)
                filled = perf_counter()
                if not int(row[token // 32]) >> (token % 32) & 1:
                    break
                matcher.consume([token])
                steps.append(perf_counter() - filled)
                fills.append(filled - start)
    print(f"{len(entries)} schemas, {refused} refused, vocabulary of {vocabulary.size}")
    _say("first mask, ms", first, 1e3)
    _say("fill, µs", fills, 1e6)
    _say("consume, µs", steps, 1e6)


def _say(name: str, seconds: Sequence[float], unit: float) -> None:
    p50, p99 = np.percentile(seconds, [50, 99]) * unit
    most = max(seconds) * unit
    print(f"{name:16} n={len(seconds):6}  p50={p50:9.2f}  p99={p99:9.2f}  max={most:9.2f}")


if __name__ == "__main__":
    main()
