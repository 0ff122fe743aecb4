"""The compiled attention against a plain one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sapwood.srt.attention.cpu import CpuAttention
from sapwood.srt.attention.work import Limits, plan_work
from sapwood.srt.batch import Batch

from .plain import Shared, attend, make_batch, make_pool, store

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def run_both(
    batch: Batch,
    shape: tuple[int, int, int],
    page_size: int,
    dtype: torch.dtype,
    n_pages: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output of the kernel and of the plain attention; checks what is in the pool, too."""
    heads, kv_heads, head_dim = shape
    pool = make_pool(n_pages, page_size, kv_heads, head_dim, dtype)
    n = batch.n_tokens
    q, k, v = (
        torch.randn(n, (heads + 2 * kv_heads) * head_dim)
        .to(dtype)
        .view(n, -1, head_dim)
        .split([heads, kv_heads, kv_heads], 1)
    )
    backend = CpuAttention(pool, n_heads=heads)
    backend.plan(batch)
    got = backend.run(0, q, k, v)
    before = pool.k(0).clone(), pool.v(0).clone()
    store(batch, pool, page_size, k, v)
    assert torch.equal(before[0], pool.k(0))
    assert torch.equal(before[1], pool.v(0))
    return got, attend(batch, pool, page_size, q)


def check(
    spans: list[tuple[int, int]],
    shape: tuple[int, int, int] = (9, 3, 64),
    page_size: int = 1,
    dtype: torch.dtype = torch.float32,
    groups: list[Shared] | None = None,
) -> None:
    torch.manual_seed(0)
    n_pages = sum(-(-stop // page_size) for _, stop in spans) + 5
    batch = make_batch(spans, page_size, n_pages, groups or [])
    got, expected = run_both(batch, shape, page_size, dtype, n_pages)
    assert got.is_contiguous()
    assert got.dtype == dtype
    near = TOLERANCE[dtype]
    torch.testing.assert_close(got.double(), expected, atol=near, rtol=near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "shape",
    [
        (9, 3, 64),
        (4, 4, 32),
        (8, 1, 128),
        (14, 2, 64),
        (6, 3, 16),
        (4, 2, 8),
        (5, 1, 100),
        (2, 2, 2),
    ],
)
def test_heads_and_sizes(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    check([(40, 41), (0, 7), (63, 64), (64, 65), (5, 70), (0, 1)], shape, dtype=dtype)


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_page_sizes(page_size: int, dtype: torch.dtype) -> None:
    check([(300, 301), (17, 40), (0, 33), (255, 256)], page_size=page_size, dtype=dtype)


@pytest.mark.parametrize("context", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 3000])
def test_one_token_after_any_context(context: int) -> None:
    check([(context - 1, context)])


@pytest.mark.parametrize("span", [(0, 1), (0, 15), (0, 200), (3, 20), (1000, 1040), (200, 209)])
def test_chunks(span: tuple[int, int]) -> None:
    check([span], dtype=torch.bfloat16)
    check([span, (span[1], span[1] + 1)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_rows", [2, 3, 16])
def test_a_group_is_the_same_as_its_rows_alone(n_rows: int, dtype: torch.dtype) -> None:
    spans = [(600 + i, 601 + i) for i in range(n_rows - 1)] + [(620, 640)]
    check(spans, dtype=dtype, groups=[Shared(tuple(range(n_rows)), 0, 600)])


@pytest.mark.parametrize("page_size", [1, 4])
def test_nested_groups_gaps_and_rows_outside(page_size: int) -> None:
    spans = [(800, 801), (804, 809), (820, 821), (50, 51), (0, 30), (1200, 1201), (1200, 1201)]
    groups = [
        Shared((0, 1, 2), 0, 400),
        Shared((0, 2), 404, 800),
        Shared((5, 6), 600, 1100),
    ]
    check(spans, page_size=page_size, groups=groups)


def test_a_group_up_to_each_rows_start_leaves_the_new_token_alone() -> None:
    check([(400, 401)] * 4, groups=[Shared((0, 1, 2, 3), 0, 400)])


def test_more_rows_than_an_item_holds() -> None:
    check([(300, 303)] * 20, groups=[Shared(tuple(range(20)), 0, 300)])


def test_groups_change_the_result_by_rounding_alone() -> None:
    torch.manual_seed(0)
    rows = tuple(range(6))
    spans = [(512 + i, 514 + i) for i in rows]
    grouped = make_batch(spans, 1, 4000, [Shared(rows, 0, 512)])
    results = []
    for batch in (grouped, grouped._replace(groups=())):
        torch.manual_seed(1)
        results.append(run_both(batch, (9, 3, 64), 1, torch.float32, 4000)[0])
    torch.testing.assert_close(*results, atol=2e-6, rtol=2e-6)


def test_a_nan_stays_in_its_row_c096() -> None:
    torch.manual_seed(0)
    batch = make_batch([(90, 91), (80, 82), (0, 5)], 1, 200, [])
    pool = make_pool(200, 1, 3, 64, torch.bfloat16)
    pool.k(0)[batch.rows[0].pages[3]] = torch.nan
    pool.v(0)[batch.rows[2].pages[:]] = torch.nan  # about to be overwritten
    backend = CpuAttention(pool, n_heads=9)
    backend.plan(batch)
    q, k, v = torch.randn(15, 8, 64).bfloat16().split([9, 3, 3])
    q, k, v = (torch.randn(8, n, 64).bfloat16() for n in (9, 3, 3))
    out = backend.run(0, q, k, v)
    assert out[0].isnan().all()
    assert not out[1:].isnan().any()


def test_huge_scores_and_infinite_keys_c096() -> None:
    torch.manual_seed(0)
    batch = make_batch([(90, 91), (80, 81)], 1, 200, [])
    pool = make_pool(200, 1, 3, 64, torch.float32)
    pool.k(0)[batch.rows[1].pages[:80]] *= 1e6
    backend = CpuAttention(pool, n_heads=9)
    backend.plan(batch)
    q, k, v = (torch.randn(2, n, 64) for n in (9, 3, 3))
    out = backend.run(0, q, k, v)
    assert out.isfinite().all()
    expected = attend(batch, pool, 1, q)
    torch.testing.assert_close(out.double(), expected, atol=1e-4, rtol=1e-4)


def test_a_query_with_nan_leaves_its_block_alone_c096() -> None:
    torch.manual_seed(0)
    batch = make_batch([(300, 301)] * 4, 1, 1300, [Shared((0, 1, 2, 3), 0, 300)])
    pool = make_pool(1300, 1, 3, 64, torch.bfloat16)
    backend = CpuAttention(pool, n_heads=9)
    backend.plan(batch)
    q, k, v = (torch.randn(4, n, 64).bfloat16() for n in (9, 3, 3))
    q[1, 4] = torch.nan
    out = backend.run(0, q, k, v)
    assert out[1, 4].isnan().all()
    out[1, 4] = 0
    assert not out.isnan().any()


@pytest.mark.parametrize("groups", [[], [Shared((0, 1), 0, 500)]])
def test_the_number_of_threads_changes_nothing(groups: list[Shared]) -> None:
    batch = make_batch([(900, 901), (700, 760), (3, 4)], 1, 2000, groups)
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            torch.manual_seed(1)
            results.append(run_both(batch, (9, 3, 64), 1, torch.bfloat16, 2000)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


def test_steps_one_after_another_share_nothing() -> None:
    torch.manual_seed(0)
    pool = make_pool(900, 1, 3, 64, torch.float32)
    backend = CpuAttention(pool, n_heads=9)
    spans = ([(0, 40), (600, 601)], [(200, 201)], [(30, 33)] * 5, [(0, 1)])
    for seed, each in enumerate(spans):
        batch = make_batch(each, 1, 900, [], seed)
        q, k, v = (torch.randn(batch.n_tokens, n, 64) for n in (9, 3, 3))
        backend.plan(batch)
        got = backend.run(0, q, k, v)
        torch.testing.assert_close(got.double(), attend(batch, pool, 1, q), atol=2e-5, rtol=2e-5)


LIMITS = Limits(queries=16, keys_few=256, keys_many=4096, kv_bytes=768, part_bytes=2400)


def test_a_group_that_saves_less_than_its_parts_cost_is_not_used() -> None:
    short = make_batch([(20, 21)] * 3, 1, 200, [Shared((0, 1, 2), 0, 20)])
    assert plan_work(short, 1, LIMITS).n_parts == 0
    long = make_batch([(400, 401)] * 3, 1, 2000, [Shared((0, 1, 2), 0, 400)])
    work = plan_work(long, 1, LIMITS)
    assert work.n_parts == 3 * 3
    # 400 shared slots once, and one new slot for each row.
    assert len(work.slots) == 403


def test_long_contexts_are_cut_evenly() -> None:
    work = plan_work(make_batch([(1499, 1500)], 1, 1500, []), 1, LIMITS)
    assert sorted(work.items[:, 3]) == [250] * 6
    assert list(work.merged) == [0]
    assert sorted(work.merged_parts) == list(range(6))


def test_every_query_sees_each_of_its_positions_once() -> None:
    groups = [Shared((0, 1), 0, 300), Shared((1, 2), 304, 600)]
    spans = [(500, 520), (700, 701), (640, 690)]
    batch = make_batch(spans, 1, 4000, groups)
    work = plan_work(batch, 1, LIMITS)
    seen: dict[int, list[int]] = {}
    for first, n, start, count, visible, _ in work.items:
        for j in range(n):
            slots = work.slots[start : start + min(count, int(visible) + j)]
            seen.setdefault(int(work.queries[first + j]), []).extend(slots)
    token = 0
    for row in batch.rows:
        for position in range(row.start, row.stop):
            assert sorted(seen[token]) == sorted(row.pages[: position + 1])
            token += 1
    assert np.array_equal(np.sort(work.merged), np.unique(work.merged))
