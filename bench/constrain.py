"""Masks of schemas, against the engines that others use: how soon, how fast, how right.

    python -m bench.constrain FILE.jsonl[.gz] [--every 7] [--engines sapwood,llguidance,...]

Every engine gets the same schemas (each ``--every``-th of the file) and instances, its keys in the
schema's order, token by token: mask, look up, move on; an instance is accepted if every token is
allowed and an end token after the last. xgrammar and outlines-core are used where they are
installed; each of their schemas is compiled in a process of its own that is killed after
``--deadline`` seconds. ``sapwood`` moves on as the server does, with a budget to end within.
At last, masks are applied to 32 rows of logits in the ways that are in use.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import multiprocessing
import os
import platform
import resource
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sapwood.constrain.compile import ConstraintCompiler
from sapwood.constrain.order import in_schema_order
from sapwood.constrain.spec import JsonSchema
from sapwood.constrain.vocabulary import Vocabulary
from sapwood.srt.checkpoint import find_model, open_checkpoint

Row = npt.NDArray[np.int32]
BUDGET = 4096
MEMORY = 16 << 30


class Place(Protocol):
    """An engine's matcher, as the loop below needs it."""

    def fill(self, row: Row) -> None: ...

    def step(self, token: int) -> bool: ...


class Engine(NamedTuple):
    """``compile`` gives a function that starts a matcher; any exception is a refusal."""

    name: str
    compile: Callable[[str], Callable[[], Place]]
    alone: bool = False


class Result(NamedTuple):
    """One schema: seconds to the first mask, of each mask and step; and whether all was right."""

    first: float | None
    fills: list[float]
    steps: list[float]
    right: bool


class _Ours:
    def __init__(self, matcher: Any) -> None:
        self.fill, self._advance = matcher.fill, matcher.advance

    def step(self, token: int) -> bool:
        return bool(self._advance(token, BUDGET) == "ok")


class _Theirs:
    def __init__(self, fill: Callable[[Row], Any], step: Callable[[int], Any]) -> None:
        self.fill, self._step = fill, step

    def step(self, token: int) -> bool:
        return self._step(token) is not False


def sapwood(vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]]) -> Engine:
    """What the server does."""
    compiler = ConstraintCompiler(vocabulary, encode)

    def compiled(schema: str) -> Callable[[], Place]:
        grammar = compiler.compile(JsonSchema(schema=schema))
        return lambda: _Ours(grammar.matcher())

    return Engine("sapwood", compiled)


def llguidance(vocabulary: Vocabulary, encode: Callable[[str], Sequence[int]]) -> Engine:
    """Used directly, with the same fixed separators."""
    import llguidance as llg

    from sapwood.constrain.grammar import _JSON_OPTIONS, _Bytes

    wrapper = llg.TokenizerWrapper(_Bytes(vocabulary, encode))
    eos = sorted(vocabulary.eos_ids)
    tokenizer = llg.LLTokenizer(wrapper, n_vocab=vocabulary.size, eos_token=eos)
    size = (vocabulary.size + 31) // 32 * 4

    def compiled(schema: str) -> Callable[[], Place]:
        grammar = llg.LLMatcher.grammar_from_json_schema(schema, overrides=_JSON_OPTIONS)
        first = llg.LLMatcher(tokenizer, grammar, log_level=0)
        if first.is_error():
            raise ValueError(first.get_error())

        def start() -> Place:
            matcher = first.deep_copy()
            return _Theirs(
                lambda row: matcher.unsafe_compute_mask_ptr(row.ctypes.data, size),
                matcher.consume_token,
            )

        return start

    return Engine("llguidance", compiled)


def xgrammar(vocabulary: Vocabulary, strict: bool) -> Engine:
    """With its defaults, or without its strict mode."""
    import torch
    import xgrammar as xgr

    texts = [data or b"" for data in vocabulary.token_bytes]
    info = xgr.TokenizerInfo(
        texts,
        vocab_type=xgr.VocabType.RAW,
        vocab_size=vocabulary.size,
        stop_token_ids=sorted(vocabulary.eos_ids),
    )

    def compiled(schema: str) -> Callable[[], Place]:
        compiler = xgr.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        grammar = compiler.compile_json_schema(
            schema, any_whitespace=False, separators=(", ", ": "), strict_mode=strict
        )

        def start() -> Place:
            matcher = xgr.GrammarMatcher(grammar)

            def fill(row: Row) -> None:
                matcher.fill_next_token_bitmask(torch.from_numpy(row)[None], 0)

            return _Theirs(fill, matcher.accept_token)

        return start

    return Engine("xgrammar" if strict else "xgrammar, not strict", compiled, alone=True)


def outlines(vocabulary: Vocabulary) -> Engine:
    """Its own expression of the schema."""
    import outlines_core as out
    from outlines_core.json_schema import build_regex_from_schema

    eos = min(vocabulary.eos_ids)
    ids: dict[bytes, list[int]] = {}
    for token, data in enumerate(vocabulary.token_bytes):
        if data and token not in vocabulary.special_ids | vocabulary.eos_ids:
            ids.setdefault(data, []).append(token)
    words = out.Vocabulary(eos, ids)

    def compiled(schema: str) -> Callable[[], Place]:
        index = out.Index(build_regex_from_schema(schema), words)

        def start() -> Place:
            guide = out.Guide(index)

            def step(token: int) -> None:
                guide.advance(token, return_tokens=False)

            return _Theirs(lambda row: guide.write_mask_into(row.ctypes.data, row.size, 4), step)

        return start

    return Engine("outlines-core", compiled, alone=True)


def measured(
    engine: Engine,
    entry: dict[str, Any],
    instances: list[tuple[list[int], bool]],
    eos: int,
    words: int,
) -> Result:
    """Compiles a schema and feeds its instances."""
    row = np.zeros(words, np.int32)
    begun = perf_counter()
    try:
        start = engine.compile(json.dumps(entry["schema"]))
        start().fill(row)
    except Exception:  # engines raise what they like for what they do not take
        return Result(None, [], [], False)
    first = perf_counter() - begun
    fills: list[float] = []
    steps: list[float] = []
    right = True
    for tokens, valid in instances:
        place, accepted = start(), True
        for token in [*tokens, eos]:
            try:
                t0 = perf_counter()
                place.fill(row)
                t1 = perf_counter()
                accepted = bool(int(row[token // 32]) >> (token % 32) & 1)
                fills.append(t1 - t0)
                if accepted and token != eos:
                    t0 = perf_counter()
                    accepted = place.step(token)
                    steps.append(perf_counter() - t0)
            except Exception:
                accepted = False
            if not accepted:
                break
        right = right and accepted == valid
    return Result(first, fills, steps, right)


def _child(pipe: Any, *args: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    pipe.send(measured(*args))
    pipe.close()
    os._exit(0)


def alone(
    engine: Engine, entry: Any, instances: Any, eos: int, words: int, deadline: float
) -> Result:
    """Measures in a process of its own; a refusal with the deadline as its time if it is late."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_child, args=(theirs, engine, entry, instances, eos, words))
    process.start()
    theirs.close()
    try:
        if ours.poll(deadline):
            return ours.recv()  # type: ignore[no-any-return]
        return Result(deadline, [], [], False)
    except EOFError:
        return Result(None, [], [], False)
    finally:
        process.kill()
        process.join()


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--every", type=int, default=7)
    parser.add_argument("--deadline", type=float, default=30.0)
    parser.add_argument("--engines", default="sapwood,llguidance,xgrammar,xgrammar-,outlines")
    given = parser.parse_args()
    checkpoint = open_checkpoint(find_model(given.model))
    tokenizer, vocabulary = checkpoint.tokenizer, checkpoint.vocabulary

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_bos=False, control=False)

    makers: dict[str, Callable[[], Engine]] = {
        "sapwood": lambda: sapwood(vocabulary, encode),
        "llguidance": lambda: llguidance(vocabulary, encode),
        "xgrammar": lambda: xgrammar(vocabulary, strict=True),
        "xgrammar-": lambda: xgrammar(vocabulary, strict=False),
        "outlines": lambda: outlines(vocabulary),
    }
    opened = gzip.open if given.file.suffix == ".gz" else open
    with opened(given.file, "rt") as file:
        entries = [json.loads(line) for line in file][:: given.every]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors")
    print(f"{len(entries)} schemas, a vocabulary of {vocabulary.size}")
    print("                                       first mask, ms        fill, us        step, us")
    print("engine                refused   right    p50     p99     p50     p99     p50     p99")
    eos, words = min(vocabulary.eos_ids), (vocabulary.size + 31) // 32
    for name in given.engines.split(","):
        try:
            engine = makers[name]()
        except ImportError as error:
            print(f"{name:22} not installed: {error}")
            continue
        results = []
        gc.collect()
        gc.freeze()  # as the worker does
        for entry in entries:
            instances = [
                (encode(_written(test["data"], entry["schema"])), test["valid"])
                for test in entry["tests"]
            ]
            if engine.alone:
                results.append(alone(engine, entry, instances, eos, words, given.deadline))
            else:
                results.append(measured(engine, entry, instances, eos, words))
        _say(engine.name, results)
    applied(vocabulary.size)


def _written(value: Any, schema: Any) -> str:
    return json.dumps(in_schema_order(value, schema), ensure_ascii=False)


def _say(name: str, results: Sequence[Result]) -> None:
    refused = sum(result.first is None for result in results)
    right = sum(result.right for result in results)
    first = [result.first for result in results if result.first is not None]
    columns = [
        *_percentiles(first, 1e3),
        *_percentiles((t for r in results for t in r.fills), 1e6),
        *_percentiles((t for r in results for t in r.steps), 1e6),
    ]
    shown = " ".join(f"{value:7.1f}" for value in columns)
    print(f"{name:22} {refused:6} {100 * right / len(results):6.1f}% {shown}", flush=True)


def _percentiles(seconds: Iterable[float], unit: float) -> list[float]:
    found = list(seconds)
    return [float(v) * unit for v in np.percentile(found, [50, 99])] if found else [0.0, 0.0]


def applied(vocab_size: int, rows: int = 32) -> None:
    """Prints what it costs to apply masks to logits."""
    import torch

    from sapwood.srt.kernels import drawing

    rng = np.random.default_rng(0)
    logits = torch.randn(rows, vocab_size)
    few = np.zeros((rows, (vocab_size + 31) // 32), np.int32)
    for row in few:
        for token in rng.integers(0, vocab_size, 64):
            row[token // 32] |= np.int32(np.uint32(1 << (token % 32)).view(np.int32))
    half = rng.integers(-(2**31), 2**31, few.shape, np.int64).astype(np.int32)

    def kernel(masks: Row) -> None:
        for x_V, mask in zip(logits.numpy(), masks, strict=True):
            drawing.apply_mask(x_V, mask)

    def unpacked(masks: Row) -> None:
        bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")[:, :vocab_size]
        logits.masked_fill_(torch.from_numpy(bits == 0), -torch.inf)

    target = torch.empty_like(logits)
    print(f"\napplying masks to {rows} x {vocab_size} float32 logits, us: 64 allowed, half allowed")
    ways: list[tuple[str, Callable[[Row], Any]]] = [
        ("sapwood", kernel),
        ("a copy of the logits", lambda masks: target.copy_(logits)),
        ("numpy and masked_fill_", unpacked),
    ]
    try:
        import xgrammar as xgr

        def theirs(masks: Row) -> None:
            xgr.apply_token_bitmask_inplace(logits, torch.from_numpy(masks))

        ways.append(("xgrammar", theirs))
    except ImportError:
        pass
    for name, way in ways:
        print(f"{name:26} {_median(way, few):8.0f} {_median(way, half):8.0f}")


def _median(way: Callable[[Row], Any], masks: Row) -> float:
    seconds = []
    for _ in range(50):
        begun = perf_counter()
        way(masks)
        seconds.append(perf_counter() - begun)
    return float(np.median(seconds)) * 1e6


if __name__ == "__main__":
    main()
