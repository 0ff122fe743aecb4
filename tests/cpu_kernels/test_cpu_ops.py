"""The CPU's small operations and products against plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sapwood.srt.kernels.cpu_ops import CpuOps
from sapwood.srt.layers import TorchOps

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(scope="module")
def ops() -> CpuOps:
    return CpuOps()


def check(got: torch.Tensor, expected: torch.Tensor) -> None:
    near = 1e-5 if expected.dtype == torch.float32 else 1.6e-2
    torch.testing.assert_close(got, expected, atol=near, rtol=near)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 15, 16, 17, 64, 576])
@pytest.mark.parametrize("rows", [1, 3])
def test_add_rms_norm(ops: CpuOps, rows: int, size: int, dtype: torch.dtype) -> None:
    residual, delta = torch.randn(rows, size), torch.randn(rows, size).to(dtype)
    weight, copy = torch.randn(size).to(dtype), residual.clone()
    for change in (None, delta):
        got = ops.add_rms_norm(residual, change, weight, 1e-5)
        check(got, TorchOps().add_rms_norm(copy, change, weight, 1e-5))
        torch.testing.assert_close(residual, copy)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [2, 16, 32, 64, 80, 128])
def test_rope_and_head_norm_of_views(ops: CpuOps, size: int, dtype: torch.dtype) -> None:
    whole = torch.randn(5, 7, size).to(dtype)
    cos, sin = torch.randn(2, 5, size // 2)
    weight, copy = torch.randn(size).to(dtype), whole.clone()
    for one, x in ((ops, whole), (TorchOps(), copy)):
        one.rope(x[:, 1:5], cos, sin)
        one.head_norm(x[:, 2:6], weight, 1e-6)
    check(whole, copy)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 16, 50, 1536])
def test_silu_mul(ops: CpuOps, size: int, dtype: torch.dtype) -> None:
    x = (30 * torch.randn(3, 2 * size)).to(dtype)
    expected = TorchOps().silu_mul(x.float()).to(dtype)
    check(ops.silu_mul(x), expected)


def test_silu_mul_far_from_zero(ops: CpuOps) -> None:
    gate = torch.tensor([-1e30, -200.0, -88.0, 0.0, 88.0, 1e30, torch.nan])
    got = ops.silu_mul(torch.cat([gate, torch.ones(7)])[None])[0]
    expected = torch.nn.functional.silu(gate)
    torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(960, 576), (7, 3), (1, 1), (65, 130)])
@pytest.mark.parametrize("bias", [False, True])
def test_linear(ops: CpuOps, shape: tuple[int, int], bias: bool, dtype: torch.dtype) -> None:
    weight = torch.randn(shape).to(dtype) / shape[1] ** 0.5
    offset = torch.randn(shape[0]).to(dtype) if bias else None
    product, plain = ops.linear(weight, offset), TorchOps().linear(weight, offset)
    for rows in (1, 2, 33):
        x = torch.randn(rows, shape[1]).to(dtype)
        got = product(x)
        assert got.dtype == dtype
        assert got.is_contiguous()
        check(got, plain(x))


def test_a_row_with_nan_leaves_the_others_alone_c096(ops: CpuOps) -> None:
    residual, weight = torch.randn(3, 40), torch.ones(40, dtype=torch.bfloat16)
    residual[1, 3] = torch.nan
    x = ops.add_rms_norm(residual, None, weight, 1e-5)
    y = ops.linear(torch.randn(6, 40).bfloat16(), None)(x)
    assert x[1].isnan().all()
    assert y[1].isnan().all()
    assert y[[0, 2]].isfinite().all()


def test_bfloat16_is_rounded_to_the_nearest_even(ops: CpuOps) -> None:
    bits = torch.from_numpy(np.random.RandomState(0).randint(0, 2**31, 4096, dtype=np.int32))
    gate = torch.full((1, 4096), 60.0)  # silu is then the gate itself
    halves = torch.cat([gate, bits.view(torch.float32)[None]], 1)
    exact = ops.silu_mul(halves) / 60
    residual = exact.clone()
    # A norm of one element with a huge epsilon's inverse scales by a power of two: only rounding.
    got = torch.cat(
        [
            ops.add_rms_norm(x.view(1, 1), None, torch.ones(1).bfloat16(), 1.0)
            for x in residual[0, :64].abs().clamp(1e-18, 1e-12)
        ]
    )
    expected = residual[0, :64].abs().clamp(1e-18, 1e-12).bfloat16()
    assert torch.equal(got[:, 0], expected)
