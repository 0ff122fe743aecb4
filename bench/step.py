"""Times the parts of one step: ``python -m bench.step [--rows 1 8 16 32] [--context 256] ...``.

A decoder of SmolLM2-135M's shape with random weights; each step has ``--rows`` rows of ``--new``
tokens after ``--context``, of which ``--shared`` are one group's. Every part is timed where it is
called, so the parts add up to the step; what is left over is the decoder's own Python and torch.
Figures are medians over ``--steps`` steps after a few for warming up (the least in brackets).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sapwood.srt.attention.select import select
from sapwood.srt.batch import Batch, Group, Row
from sapwood.srt.kernels.ops import Head, Linear
from sapwood.srt.memory.pool import KVPool
from sapwood.srt.model_config import ModelConfig, RopeConfig, expected_tensors
from sapwood.srt.models.decoder import Decoder
from sapwood.srt.request import Request

SHAPE = ModelConfig(
    architecture="llama",
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    n_layers=30,
    n_heads=9,
    n_kv_heads=3,
    head_dim=64,
    norm_eps=1e-5,
    max_positions=8192,
    rope=RopeConfig(theta=1e5),
    tied_embeddings=True,
)
PRODUCTS = {960: "qkv", 576: "out, down", 3072: "gate+up", 49152: "head"}


class Clock:
    """Seconds by part, since the last ``take``."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time added to a part's."""

        def call(*args: Any) -> Any:
            start = time.perf_counter()
            result = function(*args)
            self.spent[part] = self.spent.get(part, 0.0) + time.perf_counter() - start
            return result

        return call

    def take(self) -> dict[str, float]:
        """What was spent; starts anew."""
        spent, self.spent = self.spent, {}
        return spent


class Timed:
    """Operations or attention with every method timed."""

    def __init__(self, clock: Clock, inner: Any, names: tuple[str, ...]) -> None:
        self._clock, self._inner = clock, inner
        for name in names:
            setattr(self, name, clock.timed(name, getattr(inner, name)))

    def linear(self, weight_OI: Tensor, bias_O: Tensor | None) -> Linear:
        """The product, timed under its size."""
        part = "x " + PRODUCTS[len(weight_OI)]
        return self._clock.timed(part, self._inner.linear(weight_OI, bias_O))

    def head(self, weight_VE: Tensor) -> Head:
        """The output layer, timed as a product."""
        head = self._inner.head(weight_VE)
        return Head(self._clock.timed("x " + PRODUCTS[len(weight_VE)], head.product), head.rows)


def weights(dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Noise in the model's shape."""
    for name, shape in expected_tensors(SHAPE).items():
        yield name, (torch.randn(shape) / shape[-1] ** 0.5).to(dtype)


def make_batch(rows: int, context: int, shared: int, new: int, n_slots: int) -> Batch:
    """Contexts in runs of consecutive slots, as prefill leaves them; the shared are row 0's."""
    pages = np.arange(rows * (context + new), dtype=np.int32).reshape(rows, -1) % n_slots
    pages[:, :shared] = pages[0, :shared]
    none = cast(Request, None)
    stop = context + new
    made = tuple(Row(none, context, stop, stop - 1, stop, stop, table) for table in pages)
    groups = (Group(tuple(range(rows)), 0, shared),) if shared and rows > 1 else ()
    return Batch(0, made, groups)


def measure(
    decoder: Decoder, clock: Clock, plan: Callable[[Batch], None], batch: Batch, steps: int
) -> list[dict[str, float]]:
    """Seconds by part, for each step."""
    ids = torch.randint(SHAPE.vocab_size, (batch.n_tokens,))
    positions = torch.cat([torch.arange(row.start, row.stop) for row in batch.rows])
    last = torch.tensor([row.stop - row.start for row in batch.rows]).cumsum(0) - 1
    found = []
    for _ in range(steps + 3):
        clock.take()
        start = time.perf_counter()
        plan(batch)
        decoder.logits(decoder.forward(ids, positions)[last])
        whole = time.perf_counter() - start
        spent = clock.take()
        spent["other"] = whole - sum(spent.values())
        found.append(spent | {"step": whole})
    return found[3:]


def main() -> None:
    """Measures all combinations that were asked for and prints a table, in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--context", type=int, nargs="+", default=[256])
    parser.add_argument("--shared", type=int, default=0, help="of the context, one group's")
    parser.add_argument("--new", type=int, default=1, help="tokens of each row")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--attention", default="auto", choices=["auto", "cpu", "reference"])
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    n_slots = max(options.rows) * (max(options.context) + options.new)
    pool = KVPool(n_slots, 1, SHAPE.n_layers, SHAPE.n_kv_heads, SHAPE.head_dim, dtype)
    chosen = select(options.attention, torch.device("cpu"), pool, n_heads=SHAPE.n_heads)
    clock = Clock()
    names = ("add_rms_norm", "rope", "head_norm", "silu_mul")
    attention: Any = Timed(clock, chosen.backend, ("plan", "run"))
    ops: Any = Timed(clock, chosen.ops, names)
    with torch.inference_mode():
        for layer in range(SHAPE.n_layers):
            pool.k(layer).normal_()
            pool.v(layer).normal_()
        decoder = Decoder(SHAPE, weights(dtype), ops, attention)
        for context in options.context:
            for rows in options.rows:
                batch = make_batch(rows, context, options.shared, options.new, n_slots)
                _report(
                    rows, context, measure(decoder, clock, attention.plan, batch, options.steps)
                )


def _report(rows: int, context: int, found: list[dict[str, float]]) -> None:
    print(f"{rows} rows, {context} tokens of context")
    for part in found[0]:
        each = [1e3 * spent.get(part, 0.0) for spent in found]
        print(f"  {part:14} {np.median(each):8.2f}  ({min(each):.2f})")


if __name__ == "__main__":
    main()
