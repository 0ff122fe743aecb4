"""Which of two products runs at how many rows: measured once, and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sapwood.srt.kernels.int4 import Int4
from sapwood.srt.kernels.ops import Linear
from sapwood.srt.quant import crossover
from sapwood.srt.quant.stored import StoredProduct

SMALL, LARGE = (16, 32), (32, 64)


def product(size: tuple[int, int]) -> StoredProduct:
    outputs, inputs = size
    groups = torch.ones(outputs, inputs // 32).bfloat16()
    codes = torch.zeros(outputs, inputs, dtype=torch.uint8)
    return StoredProduct(Int4(codes, groups, groups), None, lambda x: x)


@pytest.fixture
def products() -> list[StoredProduct]:
    return [product(SMALL), product(LARGE), product(SMALL)]


Costs = dict[tuple[int, int], Callable[[int], float]]


def clocked(
    monkeypatch: pytest.MonkeyPatch, products: list[StoredProduct], few: Costs, many: float = 5.0
) -> list[int]:
    """Gives products made-up costs; returns the row counts that get tried."""
    costs: dict[Linear, Callable[[int], float]] = {}
    for each in products:
        costs[each.few] = few[each.size]
        costs[each.many] = lambda rows: many
    tried: list[int] = []

    def seconds(linear: Linear, x_TI: torch.Tensor) -> float:
        tried.append(len(x_TI))
        return costs[linear](len(x_TI))

    monkeypatch.setattr(crossover, "_seconds", seconds)
    return tried


def test_each_size_has_its_own_limit(
    monkeypatch: pytest.MonkeyPatch, products: list[StoredProduct]
) -> None:
    tried = clocked(monkeypatch, products, {SMALL: lambda rows: rows, LARGE: lambda rows: rows / 3})
    assert crossover.measure(products) == {SMALL: 4, LARGE: 12}
    assert max(tried) == 16, "no more rows than it takes"


def test_a_product_that_is_never_the_faster_one_has_the_limit_0(
    monkeypatch: pytest.MonkeyPatch, products: list[StoredProduct]
) -> None:
    clocked(monkeypatch, products, {SMALL: lambda rows: 9.0, LARGE: lambda rows: 0.1})
    assert crossover.measure(products) == {SMALL: 0, LARGE: crossover.ROWS[-1]}


def test_a_single_slow_call_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, products: list[StoredProduct]
) -> None:
    calls = iter(range(10**6))
    slow = lambda rows: 1000.0 if next(calls) in (7, 8) else float(rows)  # noqa: E731
    clocked(monkeypatch, products, {SMALL: slow, LARGE: lambda rows: rows})
    assert crossover.measure(products) == {SMALL: 4, LARGE: 4}


def test_what_was_measured_is_kept_for_this_machine_alone(
    monkeypatch: pytest.MonkeyPatch, products: list[StoredProduct], tmp_path: Path
) -> None:
    clocked(monkeypatch, products, {SMALL: lambda rows: rows, LARGE: lambda rows: rows})
    assert crossover.limits(products, tmp_path) == ({SMALL: 4, LARGE: 4}, False)
    clocked(monkeypatch, products, {SMALL: lambda rows: 9.0, LARGE: lambda rows: 9.0})
    assert crossover.limits(products, tmp_path) == ({SMALL: 4, LARGE: 4}, True)
    monkeypatch.setattr(crossover, "_processor", lambda: "another")
    assert crossover.limits(products, tmp_path) == ({SMALL: 0, LARGE: 0}, False)
    kept = json.loads((tmp_path / "products.json").read_text())
    assert sorted(map(len, kept.values())) == [2, 2], "one section beside the other"
    assert [path.name for path in tmp_path.iterdir()] == ["products.json"]


def test_the_number_of_threads_makes_another_machine() -> None:
    before, threads = crossover.machine(), torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert crossover.machine() != before
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"here": {"16x32": "4", "32x64": -1}}', "\0"])
def test_a_broken_file_is_measured_over(
    monkeypatch: pytest.MonkeyPatch, products: list[StoredProduct], tmp_path: Path, content: str
) -> None:
    monkeypatch.setattr(crossover, "machine", lambda: "here")
    (tmp_path / "products.json").write_text(content)
    clocked(monkeypatch, products, {SMALL: lambda rows: rows, LARGE: lambda rows: rows})
    assert crossover.limits(products, tmp_path) == ({SMALL: 4, LARGE: 4}, False)
    assert crossover.limits(products, tmp_path)[1]


def test_a_folder_that_cannot_be_written_is_no_harm(
    monkeypatch: pytest.MonkeyPatch, products: list[StoredProduct], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    clocked(monkeypatch, products, {SMALL: lambda rows: rows, LARGE: lambda rows: rows})
    for _ in range(2):
        assert crossover.limits(products, tmp_path / "file") == ({SMALL: 4, LARGE: 4}, False)


def test_a_new_size_is_added_to_what_is_known(
    monkeypatch: pytest.MonkeyPatch, products: list[StoredProduct], tmp_path: Path
) -> None:
    clocked(monkeypatch, products, {SMALL: lambda rows: rows, LARGE: lambda rows: rows})
    assert crossover.limits([products[0]], tmp_path) == ({SMALL: 4}, False)
    assert crossover.limits(products, tmp_path) == ({SMALL: 4, LARGE: 4}, False)
    assert crossover.limits([products[0]], tmp_path) == ({SMALL: 4}, True)
