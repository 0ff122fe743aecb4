"""Parts of the models that the oracle does not show: dtypes, near-ties, errors of loading."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sapwood.srt.errors import LoadError
from sapwood.srt.layers import TorchOps
from sapwood.srt.models import model_dtype
from sapwood.srt.models.decoder import refined
from sapwood.srt.models.dtype import cpu_multiplies_bfloat16

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16", True),
        ("flags\t\t: fpu amx_bf16 amx_tile", True),
        ("Features\t: fp asimd bf16", True),
        ("flags\t\t: fpu avx2 avx512f", False),
        ("model name\t: avx512_bf16", False),
    ],
)
def test_bfloat16_is_used_where_the_hardware_has_it(tmp_path: Path, flags: str, has: bool) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n")
    assert cpu_multiplies_bfloat16(tmp_path / "cpuinfo") is has
    assert not cpu_multiplies_bfloat16(tmp_path / "nothing")


def test_c096_float16_is_not_offered() -> None:
    """C096: models trained in bfloat16 overflow it."""
    assert model_dtype("float32", CPU) == torch.float32
    assert model_dtype("bfloat16", CPU) == torch.bfloat16
    assert model_dtype("auto", CPU) in (torch.float32, torch.bfloat16)
    with pytest.raises(LoadError, match="float16"):
        model_dtype("float16", CPU)


def test_ties_of_bfloat16_are_resolved_in_float32() -> None:
    """Two tokens whose logits round to one value keep their order, and the others their value."""
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(500, 64, generator=generator).bfloat16()
    hidden = torch.randn(3, 64, generator=generator).bfloat16()
    head[7] = hidden[1] * 0.5
    head[9] = head[7]
    head[9, 0] *= 1.0 + 2.0**-6  # a little more of what is there: a larger logit by a hair
    exact = hidden.float() @ head.float().T
    rough = (hidden @ head.T).float()
    assert rough[1, 7] == rough[1, 9]
    assert exact[1, 9] > exact[1, 7]
    before = rough.clone()
    refined(rough, hidden, head)
    assert int(rough[1].argmax()) == 9
    changed = rough != before
    torch.testing.assert_close(rough[changed], exact[changed], atol=1e-4, rtol=1e-5)
    assert changed.sum() < 60


def test_ties_are_resolved_whatever_the_neighbours_are() -> None:
    """Rows with too many near-ties to resolve, and rows without numbers, leave the others alone."""
    generator = torch.Generator().manual_seed(0)
    head = torch.randn(5000, 64, generator=generator).bfloat16()
    hidden = torch.randn(1, 64, generator=generator).bfloat16()
    alone = refined((hidden @ head.T).float(), hidden, head)
    neighbours = torch.zeros(3, 64).bfloat16()  # all of their logits are the same
    neighbours[1] = torch.nan
    both = torch.cat([neighbours[:2], hidden, neighbours[2:]])
    rough = (both @ head.T).float()
    got = refined(rough.clone(), both, head)
    assert not torch.equal(alone[0], rough[2]), "there was something to resolve"
    torch.testing.assert_close(got[2], alone[0], atol=0, rtol=0)
    assert torch.equal(got[0], rough[0])


def test_rows_without_numbers_stay_as_they_are() -> None:
    head, hidden = torch.ones(40, 8).bfloat16(), torch.ones(2, 8).bfloat16()
    hidden[0] = torch.nan
    rough = refined((hidden @ head.T).float(), hidden, head)
    assert rough[0].isnan().all()
    assert (rough[1] == 8).all()


def test_plain_operations_follow_their_formulas() -> None:
    ops, generator = TorchOps(), torch.Generator().manual_seed(1)
    x = torch.randn(3, 2, 8, generator=generator)
    angle = torch.rand(3, 4, generator=generator)
    turned = x.clone()
    ops.rope(turned, angle.cos(), angle.sin())
    pairs = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones(3, 4), angle)[:, None]
    torch.testing.assert_close(turned, torch.cat([pairs.real, pairs.imag], -1))
    residual, delta = torch.randn(3, 8, generator=generator), torch.ones(3, 8)
    want = residual + 1
    normed = ops.add_rms_norm(residual, delta, torch.full((8,), 2.0), 1e-6)
    torch.testing.assert_close(residual, want)
    torch.testing.assert_close(normed, 2 * want / want.square().mean(-1, keepdim=True).sqrt())
