"""LaProp and adaptive clipping, by numbers computed by hand."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from torch import nn

from gymlab.components.laprop import LaProp, clip_adaptively


def test_gradients_are_clipped_by_the_norm_of_their_weights() -> None:
    weight, gradient = torch.tensor([3.0, 4.0]), torch.tensor([30.0, 40.0])
    small = torch.tensor([0.1, 0.1])
    zeros, onto_zeros = torch.zeros(2), torch.tensor([3.0, 4.0])
    clip_adaptively([weight, weight, zeros], [gradient, small, onto_zeros], 0.3)
    assert gradient.tolist() == pytest.approx([0.9, 1.2])
    assert small.tolist() == pytest.approx([0.1, 0.1])
    assert onto_zeros.norm().item() == pytest.approx(0.3e-3)


def test_two_steps() -> None:
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = LaProp([weight], lr=0.1, agc=None, warmup=0)
    weight.grad = torch.tensor([2.0], dtype=torch.float64)
    optimizer.step()
    # The first gradient divided by its own size is 1, whatever it is.
    assert weight.item() == pytest.approx(0.9)
    weight.grad = torch.tensor([-4.0], dtype=torch.float64)
    optimizer.step()
    second = (0.999 * 0.001 * 4 + 0.001 * 16) / (1 - 0.999**2)
    first = 0.9 * 0.1 * 1 + 0.1 * (-4 / math.sqrt(second))
    assert weight.item() == pytest.approx(0.9 - 0.1 * first / (1 - 0.9**2))


def test_the_rate_rises_during_the_warm_up() -> None:
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = LaProp([weight], lr=0.1, agc=None, warmup=10)
    weight.grad = torch.ones(1)
    optimizer.step()
    assert weight.item() == pytest.approx(1 - 0.01)


def test_a_copy_that_takes_over_the_state_goes_on_alike() -> None:
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(3, 2)) for _ in range(2)]
    with torch.no_grad():
        weights[1].copy_(weights[0])
    gradients = [torch.randn(3, 2) for _ in range(4)]
    optimizer = LaProp([weights[0]], lr=0.01, warmup=3)
    for gradient in gradients[:2]:
        weights[0].grad = gradient.clone()
        optimizer.step()
    with torch.no_grad():
        weights[1].copy_(weights[0])
    copy = LaProp([weights[1]], lr=0.01, warmup=3)
    copy.load_state_dict(deepcopy(optimizer.state_dict()))
    for gradient in gradients[2:]:
        for weight, chosen in zip(weights, (optimizer, copy), strict=True):
            weight.grad = gradient.clone()
            chosen.step()
    assert torch.equal(weights[0], weights[1])


def test_parameters_without_a_gradient_stay() -> None:
    still, moving = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = LaProp([still, moving], lr=0.1, warmup=0)
    moving.grad = torch.ones(2)
    optimizer.step()
    assert still.tolist() == [1, 1]
    assert moving.tolist() != [1, 1]
