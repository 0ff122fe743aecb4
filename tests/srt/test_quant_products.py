"""Products of quantised weights against float32 products of the same effective weights."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from sapwood.srt.checkpoint.weights import Weight
from sapwood.srt.kernels.int4 import Int4, joined, plain
from sapwood.srt.kernels.ops import Linear
from sapwood.srt.layers import TorchOps
from sapwood.srt.models.decoder import refined
from sapwood.srt.quant.blocks import int4
from sapwood.srt.quant.stored import StoredProduct, StoredProducts, int4_product
from sapwood.srt.quant.w8a8 import EightBit, W8A8Products

ROWS = range(1, 41)
SIZES = [(16, 32), (960, 576), (48, 96)]
ODD_SIZES = [(17, 33), (1, 1), (5, 40), (65, 130)]


def weight(kind: str, outputs: int, inputs: int, seed: int = 0) -> Weight:
    values = np.random.default_rng(seed).standard_normal((outputs, inputs)).astype(np.float32)
    values += 0.3  # so that zeros of blocks differ from the middle of the codes
    blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
    return Weight("w", (outputs, inputs), kind, blocks)


def regrouped(kind: str, outputs: int, inputs: int) -> Int4:
    found = int4(weight(kind, outputs, inputs))
    assert found is not None
    return found


def vector(size: int, present: bool) -> torch.Tensor | None:
    return (
        torch.randn(size, generator=torch.Generator().manual_seed(1)).bfloat16()
        if present
        else None
    )


def rows_of(count: int, size: int) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(count)).bfloat16()


def exact(x: torch.Tensor, values: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product = x.double() @ values.double().T
    return (product if bias is None else product + bias.double()).float()


def spread(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The largest that a sum can be: what rounding of weights to bfloat16 is relative to."""
    return x.float().abs() @ values.abs().T


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_blocks_keep_their_values(kind: str) -> None:
    """Scale and zero are rounded to bfloat16, 2**-9 of each; the codes are those of the file."""
    source = weight(kind, 48, 96)
    found = int4(source)
    assert found is not None
    assert found.size == (48, 96)
    scale = found.scale_OG.float().repeat_interleave(32, 1)
    zero = found.zero_OG.float().repeat_interleave(32, 1)
    bound = 2.0**-8 * (8 * scale.abs() + zero.abs())
    assert ((found.values() - torch.from_numpy(source.read())).abs() <= bound).all()
    assert found.codes_OI.unique().tolist() == list(range(16))


def test_blocks_follow_the_order_of_rows() -> None:
    source = weight("Q4_1", 16, 64)
    order = np.random.default_rng(2).permutation(16)
    turned = int4(Weight("w", (16, 64), "Q4_1", source.stored(), order))
    whole = int4(source)
    assert turned is not None
    assert whole is not None
    assert torch.equal(turned.values(), whole.values()[torch.from_numpy(order)])


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0", "Q6_K"])
def test_other_formats_are_not_taken(kind: str) -> None:
    assert int4(Weight("w", (1, 256), kind, np.zeros((1, 256), np.float32))) is None


def test_parts_of_4_bits_stay_so_only_where_all_are() -> None:
    zeros, ones = regrouped("Q4_0", 16, 64), regrouped("Q4_1", 32, 64)
    both = joined([zeros, ones])
    assert isinstance(both, Int4)
    assert torch.equal(both.values(), torch.cat([zeros.values(), ones.values()]))
    mixed = joined([zeros, torch.ones(2, 64).bfloat16()])
    assert isinstance(mixed, torch.Tensor)
    assert torch.equal(mixed, torch.cat([plain(zeros), torch.ones(2, 64).bfloat16()]))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_both_products_of_4_bits_are_of_the_same_weights(
    kind: str, size: tuple[int, int], bias: bool
) -> None:
    """The 4-bit product rounds its result (twice with a bias), the other its weights as well."""
    matrix, offset = regrouped(kind, *size), vector(size[0], bias)
    values = matrix.values()
    made = StoredProducts()
    product = made.linear(matrix, offset)
    assert isinstance(product, StoredProduct)
    reference = TorchOps().linear(matrix, offset)
    for count in ROWS:
        x = rows_of(count, size[1])
        expected, most = exact(x, values, offset), spread(x, values)
        few, many = product.few(x), product.many(x)
        assert (few.dtype, many.dtype) == (torch.bfloat16, torch.bfloat16)
        rounding = 2.0**-7 * expected.abs() + 2.0**-8 * (3.0 if bias else 0.0) + 1e-5 * most
        assert ((few.float() - expected).abs() <= rounding).all()
        assert ((many.float() - expected).abs() <= rounding + 2.0**-8 * most).all()
        torch.testing.assert_close(many, reference(x), atol=2e-2, rtol=2e-2)


def test_the_limit_says_which_product_runs() -> None:
    product = StoredProduct(regrouped("Q4_1", 16, 32), None, lambda x: x)
    ran: list[str] = []

    def noted(name: str) -> Linear:
        def linear(x: torch.Tensor) -> torch.Tensor:
            ran.append(name)
            return x

        return linear

    product.few, product.many = noted("few"), noted("many")
    product.limit = 3
    for count in (1, 3, 4, 40):
        product(rows_of(count, 32))
    assert ran == ["few", "few", "many", "many"]


@pytest.mark.parametrize("outputs", [1, 8, 17, 24])
def test_outputs_that_the_4_bit_product_does_not_take_are_bfloat16(outputs: int) -> None:
    """Fewer or more than a multiple of 16: torch refuses them, and the layer is as without."""
    matrix, made = regrouped("Q4_1", outputs, 64), StoredProducts()
    with pytest.raises(RuntimeError, match="16"):
        int4_product(matrix, None)
    product = made.linear(matrix, None)
    assert (made.made, made.others) == ([], 1)
    x = rows_of(5, 64)
    torch.testing.assert_close(product(x), TorchOps().linear(matrix, None)(x), atol=2e-2, rtol=2e-2)


def test_4_bit_forms_that_are_slower_everywhere_are_given_up() -> None:
    made = StoredProducts()
    for size in ((16, 32), (32, 32)):
        made.linear(regrouped("Q4_1", *size), None)
    made.settle({(16, 32): 0, (32, 32): 2})
    assert [product.limit for product in made.made] == [0, 2]
    assert [product.few is product.many for product in made.made] == [True, False]


@pytest.fixture(scope="module")
def eight() -> W8A8Products:
    return W8A8Products()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [*SIZES, *ODD_SIZES])
def test_the_8_bit_product_is_that_of_rounded_rows(
    eight: W8A8Products, size: tuple[int, int], bias: bool
) -> None:
    """Exactly the product of both rounded sides, but for the last rounding; and near the real."""
    values = torch.randn(size, generator=torch.Generator().manual_seed(3)).bfloat16()
    offset, weights = vector(size[0], bias), EightBit.of(values)
    effective = weights[torch.arange(size[0])]
    assert ((effective - values.float()).abs() <= 0.5001 * weights.scale_O[:, None]).all()
    product = eight.linear(values, offset)
    for count in ROWS:
        x = rows_of(count, size[1])
        high = x.float().abs().amax(1, keepdim=True)
        scale = high / 127
        # A quotient of two tensors: that of a number and a tensor is rounded twice.
        rounded = (x.float() * (torch.tensor(127.0) / high)).round() * scale
        got = product(x).float()
        expected = exact(rounded, effective, offset)
        assert ((got - expected).abs() <= 2.0**-8 * expected.abs() + 1e-4).all()
        # Half a step of error for each element at most: of activations, and of weights.
        bound = 0.51 * scale * effective.abs().sum(1)
        bound += 0.51 * weights.scale_O * x.float().abs().sum(1, keepdim=True)
        near = exact(x, values.float(), offset)
        assert ((got - near).abs() <= bound + 2.0**-7 * near.abs() + 1e-3).all()


def test_an_8_bit_row_does_not_depend_on_its_neighbours(eight: W8A8Products) -> None:
    product = eight.linear(torch.randn(96, 200).bfloat16(), None)
    x = 3 * torch.randn(700, 200).bfloat16()  # several threads
    whole = product(x)
    for count in (1, 2, 7, 33):
        assert torch.equal(product(x[:count].clone()), whole[:count])


def test_zeros_and_rows_without_numbers(eight: W8A8Products) -> None:
    values = torch.randn(8, 40).bfloat16()
    values[3] = 0
    product = eight.linear(values, None)
    x = torch.randn(5, 40).bfloat16()
    alone = product(x.clone())
    x[1], x[2, 39], x[3, 0] = 0, torch.nan, torch.inf
    got = product(x)
    assert (got[1] == 0).all()
    assert got[2:4].isnan().all()
    assert torch.equal(got[[0, 4]], alone[[0, 4]])
    assert (got[[0, 1, 4], 3] == 0).all()


def test_large_8_bit_sums_do_not_saturate(eight: W8A8Products) -> None:
    size = 1000
    got = eight.linear(torch.ones(16, size).bfloat16(), None)(torch.ones(3, size).bfloat16())
    torch.testing.assert_close(got.float(), torch.full((3, 16), float(size)))


def test_refined_8_bit_logits_are_exact_for_the_effective_weights(eight: W8A8Products) -> None:
    values = torch.randn(500, 64, generator=torch.Generator().manual_seed(5)).bfloat16()
    before, hidden = values.clone(), rows_of(3, 64)
    head = eight.head(values)
    rough = head.product(hidden)
    assert rough.dtype == torch.float32
    expected = hidden.float() @ head.rows[torch.arange(500)].T
    assert (rough - expected).abs().max() < 0.02 * expected.abs().max()
    got = refined(rough.clone(), hidden, head.rows)
    best = got.argmax(-1, keepdim=True)
    torch.testing.assert_close(got.gather(1, best), expected.gather(1, best))
    assert torch.equal(values, before), "the embedding is left as it is"
