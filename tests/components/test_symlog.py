"""The symmetric logarithm and two-hot scalars, by numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from gymlab.components.symlog import TwoHot, UnitNormal, symexp, symlog


def test_symlog_is_odd_and_symexp_its_inverse() -> None:
    x = torch.tensor([-1000.0, -1.0, 0.0, 1.0, 100.0], dtype=torch.float64)
    assert symlog(x)[3].item() == pytest.approx(0.693147, abs=1e-6)
    assert symlog(x)[4].item() == pytest.approx(4.615121, abs=1e-6)
    torch.testing.assert_close(symlog(-x), -symlog(x))
    torch.testing.assert_close(symexp(symlog(x)), x)


def test_bins_reach_far_and_zero_is_one_of_them() -> None:
    bins = TwoHot().bins
    assert len(bins) == 255
    assert bins[127] == 0
    assert bins[128].item() == pytest.approx(0.170558, abs=1e-6)
    assert bins[-1].item() == pytest.approx(4.85e8, rel=1e-2)
    torch.testing.assert_close(bins, -bins.flip(0))


@pytest.mark.parametrize(
    ("spacing", "number", "bin_below", "share_below"),
    [("symexp", 1.0, 131, 0.617329), ("symexp", 100.0, 156, 0.710529), ("symlog", 1.0, 131, 0.598515)],
)
def test_the_two_bins_around_a_number(spacing: str, number: float, bin_below: int, share_below: float) -> None:
    weights = TwoHot(spacing=spacing).encode(torch.tensor([number]))[0]  # type: ignore[arg-type]
    assert weights.nonzero().flatten().tolist() == [bin_below, bin_below + 1]
    assert weights[bin_below].item() == pytest.approx(share_below, abs=1e-5)
    assert weights.sum().item() == pytest.approx(1.0, abs=1e-6)


def test_zero_is_one_hot_in_the_middle() -> None:
    weights = TwoHot().encode(torch.zeros(1))[0]
    assert weights[127] == 1
    assert weights.sum() == 1


@pytest.mark.parametrize("spacing", ["symexp", "symlog"])
def test_a_number_comes_back_from_its_bins(spacing: str) -> None:
    two_hot = TwoHot(spacing=spacing)  # type: ignore[arg-type]
    numbers = torch.tensor([-3e5, -12.5, -0.3, 0.0, 0.01, 1.0, 7.0, 1234.5])
    logits = two_hot.encode(numbers).clamp(min=1e-30).log()
    torch.testing.assert_close(two_hot.mean(logits), numbers, rtol=1e-4, atol=1e-5)


def test_numbers_beyond_the_bins_are_taken_for_the_last_one() -> None:
    assert TwoHot().encode(torch.tensor([1e12]))[0, -1] == 1


def test_equal_weights_are_exactly_zero() -> None:
    two_hot = TwoHot()
    assert two_hot.mean(torch.zeros(3, 255)).tolist() == [0.0, 0.0, 0.0]
    assert two_hot.loss(torch.zeros(1, 255), torch.zeros(1)).item() == pytest.approx(math.log(255), abs=1e-4)


def test_the_loss_is_cross_entropy_with_the_weights() -> None:
    two_hot = TwoHot()
    generator = torch.Generator().manual_seed(0)
    logits, numbers = torch.randn(5, 255, generator=generator), 10 * torch.randn(5, generator=generator)
    expected = -(two_hot.encode(numbers) * logits.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(two_hot.loss(logits, numbers), expected)


def test_an_even_number_of_bins_has_no_middle() -> None:
    with pytest.raises(ValueError, match="odd"):
        TwoHot(254)


def test_unit_normal_is_half_the_squared_error() -> None:
    scalar = UnitNormal()
    assert scalar.loss(torch.tensor([[3.0]]), torch.tensor([1.0])).tolist() == [2.0]
    assert scalar.mean(torch.tensor([[3.0]])).tolist() == [3.0]
