"""Returns along sequences and the range that they span, by numbers computed by hand."""

from __future__ import annotations

import pytest
import torch

from gymlab.components.td_returns import (
    ReturnScale,
    differentiable_lambda_return,
    discounted_return,
    lambda_return,
    n_step_return,
)

REWARD = torch.tensor([99.0, 1.0, 2.0, 3.0], dtype=torch.float64)
VALUE = torch.tensor([5.0, 4.0, 3.0, 2.0], dtype=torch.float64)
DISCOUNT = torch.full((4,), 0.9, dtype=torch.float64)


@pytest.mark.parametrize("function", [lambda_return, differentiable_lambda_return])
@pytest.mark.parametrize(
    ("lam", "expected"),
    [(0.95, [6.514345, 6.239, 4.8]), (1.0, [6.688, 6.32, 4.8]), (0.0, [4.6, 4.7, 4.8])],
)
def test_lambda_return(function, lam: float, expected: list[float]) -> None:
    assert function(REWARD, DISCOUNT, VALUE, lam).tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("function", [lambda_return, differentiable_lambda_return])
def test_nothing_is_expected_behind_an_end(function) -> None:
    discount = DISCOUNT.clone()
    discount[2] = 0
    assert function(REWARD, discount, VALUE, 0.95).tolist() == pytest.approx([2.89, 2.0, 4.8], abs=1e-9)


def test_a_sequence_is_cut_where_lambda_is_zero() -> None:
    lam = torch.tensor([0.95, 0.0, 0.95], dtype=torch.float64)
    whole = lambda_return(REWARD, DISCOUNT, VALUE, lam)
    # State 2 ends its sequence: what follows it is its value alone.
    second = 2 + 0.9 * 3
    assert whole.tolist() == pytest.approx([1 + 0.9 * (0.05 * 4 + 0.95 * second), second, 4.8], abs=1e-9)


def test_discounted_return_is_lambda_one() -> None:
    assert discounted_return(REWARD, DISCOUNT, VALUE).tolist() == pytest.approx([6.688, 6.32, 4.8], abs=1e-9)


def test_n_step_returns() -> None:
    assert n_step_return(REWARD, DISCOUNT, VALUE, 1).tolist() == pytest.approx([4.6, 4.7, 4.8], abs=1e-9)
    two = [1 + 0.9 * (2 + 0.9 * 3), 2 + 0.9 * (3 + 0.9 * 2), 4.8]
    assert n_step_return(REWARD, DISCOUNT, VALUE, 2).tolist() == pytest.approx(two, abs=1e-9)
    assert n_step_return(REWARD, DISCOUNT, VALUE, 9).tolist() == pytest.approx([6.688, 6.32, 4.8], abs=1e-9)


def test_gradients_reach_rewards_and_values() -> None:
    reward, value = REWARD.clone().requires_grad_(), VALUE.clone().requires_grad_()
    differentiable_lambda_return(reward, DISCOUNT, value, 1.0)[0].backward()
    assert reward.grad is not None and value.grad is not None
    assert reward.grad.tolist() == pytest.approx([0, 1, 0.9, 0.81])
    assert value.grad.tolist() == pytest.approx([0, 0, 0, 0.729])


def test_shapes_that_would_broadcast_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        lambda_return(torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(4, 2, 1), 0.95)


def test_the_range_of_returns_grows_from_zero_and_is_never_below_one() -> None:
    scale = ReturnScale()
    returns = torch.linspace(0, 100, 10_001)
    seen = [scale.update(returns).item() for _ in range(3)]
    assert seen == pytest.approx([1.0, 1.791, 2.67309], abs=1e-4)
    assert set(scale.state_dict()) == {"low", "high"}
