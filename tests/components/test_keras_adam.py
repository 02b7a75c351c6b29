"""Adam as Keras computes it, by numbers computed by hand."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from torch import nn

from gymlab.components.keras_adam import KerasAdam


def test_two_steps() -> None:
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = KerasAdam([weight], lr=0.1, eps=0.01)
    expected = 1.0
    first = second = 0.0
    for step, gradient in enumerate((0.5, -0.25), start=1):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        rate = 0.1 * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        expected -= rate * first / (math.sqrt(second) + 0.01)
        assert weight.item() == pytest.approx(expected, rel=1e-9)
    # Torch's Adam would have gone 0.1 / 1.02 in the first step; here it is 0.1 / (1 + 0.01 / (0.5 sqrt(0.001))).
    assert 0.1 / (1 + 0.01 / (0.5 * math.sqrt(0.001))) == pytest.approx(0.061258, abs=1e-6)


@pytest.mark.parametrize("lr", [0.0, 1e-4, 1.0])
def test_weights_decay_by_a_share_of_themselves_whatever_the_rate(lr: float) -> None:
    weight = nn.Parameter(torch.tensor([1000.0, -3.0], dtype=torch.float64))
    optimizer = KerasAdam([weight], lr=lr, decay=1e-6)
    for _ in range(3):
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
    assert weight.tolist() == pytest.approx([1000 * (1 - 1e-6) ** 3, -3 * (1 - 1e-6) ** 3], rel=1e-12)


def test_the_decay_comes_before_the_step() -> None:
    weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = KerasAdam([weight], lr=0.1, eps=1e-12, decay=0.25)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert weight.item() == pytest.approx(2 * 0.75 - 0.1)


def test_parameters_without_a_gradient_neither_move_nor_decay() -> None:
    still, moving = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = KerasAdam([still, moving], lr=0.1, decay=0.5)
    moving.grad = torch.ones(2)
    optimizer.step()
    assert still.tolist() == [1, 1]
    assert moving.tolist() == pytest.approx([0.4, 0.4])


def test_a_copy_that_takes_over_the_state_goes_on_alike() -> None:
    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizer, copy = (KerasAdam([weight], lr=0.01, eps=1e-3, decay=1e-3) for weight in weights)
    for chosen, count in ((0, 2), (1, 3)):
        if chosen:
            with torch.no_grad():
                weights[1].copy_(weights[0])
            copy.load_state_dict(deepcopy(optimizer.state_dict()))
        for k in range(count):
            for weight, of in list(zip(weights, (optimizer, copy), strict=True))[: chosen + 1]:
                weight.grad = torch.tensor([1.0, -2.0, 0.1 * k])
                of.step()
    assert torch.equal(weights[0], weights[1])


def test_the_state_of_an_earlier_release_was_that_of_adamw() -> None:
    earlier, weight = (nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(2))
    adamw = torch.optim.AdamW([earlier], lr=0.1, eps=1e-5, weight_decay=1e-6, fused=True)
    for _ in range(3):
        earlier.grad = torch.ones_like(earlier)
        adamw.step()
    optimizer = KerasAdam([weight], lr=0.1, eps=1e-7, decay=0.5)
    optimizer.load_state_dict(adamw.state_dict())
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    # Moments of a constant gradient of 1: a whole step of the rate, behind the decay of this optimiser alone.
    assert weight.tolist() == pytest.approx([0.4, 0.4], abs=1e-6)
    assert optimizer.param_groups[0]["steps"] == 4
