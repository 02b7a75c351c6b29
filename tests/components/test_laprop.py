"""LaProp and adaptive clipping, by numbers computed by hand."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from torch import nn

from gymlab.components.laprop import LaProp, clip_adaptively
from gymlab.components.optimizers import restore_optimizer


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
    moved = []
    for _ in range(12):
        before = weight.item()
        weight.grad = torch.ones(1)
        optimizer.step()
        moved.append(before - weight.item())
    # The first step has the rate 0, the eleventh is the first with the whole.
    assert moved == pytest.approx([*(0.01 * k for k in range(10)), 0.1, 0.1], abs=1e-6)


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


def stepped(optimizer: LaProp, weight: nn.Parameter, gradient: float) -> float:
    """How far one step moves a weight."""
    before = weight.item()
    weight.grad = torch.tensor([gradient], dtype=weight.dtype)
    optimizer.step()
    return before - weight.item()


@pytest.mark.parametrize("model_alone", [200, 2000])
def test_a_parameter_that_begins_late_takes_steps_of_the_learning_rate(model_alone: int) -> None:
    """With one counter for all, the actor's first steps after so many updates of the model alone were 4.0 and 8.7 times as long."""
    model, actor = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))
    optimizer = LaProp([model, actor], lr=4e-5, agc=None, warmup=0)
    for _ in range(model_alone):
        stepped(optimizer, model, 2.0)
    # The same gradient again and again: divided by its size it is 1, and so is the mean of ones.
    assert [stepped(optimizer, actor, 3.0) for _ in range(30)] == pytest.approx([4e-5] * 30)


def test_two_parameters_of_which_one_begins_at_the_third_step() -> None:
    early, late = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))
    optimizer = LaProp([early, late], lr=0.1, betas=(0.5, 0.75), agc=None, warmup=0)
    moved: list[tuple[float, float]] = []
    for gradients in ((2.0, None), (4.0, None), (2.0, 1.0), (None, 3.0), (2.0, 1.0)):
        before = (early.item(), late.item())
        for weight, gradient in zip((early, late), gradients, strict=True):
            weight.grad = None if gradient is None else torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        moved.append((before[0] - early.item(), before[1] - late.item()))
    # v of the early one: 1, 4.75, 4.5625; 4.421875 at its fourth step, which is the fifth of all. Of the late one: 0.25, 2.4375, 2.078125.
    divided = [2 / math.sqrt(1 / 0.25), 4 / math.sqrt(4.75 / 0.4375), 2 / math.sqrt(4.5625 / 0.578125)]
    divided.append(2 / math.sqrt(4.421875 / 0.68359375))
    first = [0.5, 0.25 + divided[1] / 2]
    first.append((first[1] + divided[2]) / 2)
    first.append((first[2] + divided[3]) / 2)
    steps = [0.1 * m / (1 - 0.5 ** (k + 1)) for k, m in enumerate(first)]
    assert [early_step for early_step, _ in moved] == pytest.approx([*steps[:3], 0.0, steps[3]])
    divided = [1.0, 3 / math.sqrt(2.4375 / 0.4375), 1 / math.sqrt(2.078125 / 0.578125)]
    first = [0.5, 0.25 + divided[1] / 2]
    first.append((first[1] + divided[2]) / 2)
    steps = [0.1 * m / (1 - 0.5 ** (k + 1)) for k, m in enumerate(first)]
    assert [late_step for _, late_step in moved] == pytest.approx([0.0, 0.0, *steps])


def test_the_warm_up_is_each_parameters_own() -> None:
    early, late = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))
    optimizer = LaProp([early, late], lr=1.0, agc=None, warmup=4)
    assert [stepped(optimizer, early, 1.0) for _ in range(6)] == pytest.approx([0, 0.25, 0.5, 0.75, 1, 1])
    early.grad = None
    assert [stepped(optimizer, late, 1.0) for _ in range(3)] == pytest.approx([0, 0.25, 0.5])


def test_the_state_of_an_earlier_release_had_one_counter_for_all() -> None:
    """Its parameters go on with that counter, by which their moments were corrected; one that had none begins."""
    weights = [nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2)]
    optimizer = LaProp(weights, lr=0.1, agc=None, warmup=10)
    for _ in range(3):
        stepped(optimizer, weights[0], 2.0)
    earlier = deepcopy(optimizer.state_dict())
    for state in earlier["state"].values():
        del state["step"]
    earlier["param_groups"][0]["steps"] = 3
    copies = [nn.Parameter(weight.detach().clone()) for weight in weights]
    restored = LaProp(copies, lr=0.1, agc=None, warmup=10)
    restored.load_state_dict(earlier)
    assert "steps" not in restored.param_groups[0]
    for gradient in (2.0, -1.0):
        assert stepped(restored, copies[0], gradient) == stepped(optimizer, weights[0], gradient)
    copies[0].grad = None
    assert [stepped(restored, copies[1], 5.0) for _ in range(2)] == pytest.approx([0, 0.01])


def test_parameters_without_a_gradient_have_no_state_when_it_is_taken_back() -> None:
    """One that was not stepped yet may have an empty state, as earlier releases saved it; one that lacks a moment is refused."""
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = LaProp(parameters)
    parameters[0].grad = torch.ones(2)
    optimizer.step()
    saved = optimizer.state_dict()
    assert list(saved["state"]) == [0]
    restore_optimizer(optimizer, saved)
    assert list(optimizer.state_dict()["state"]) == [0]
    restore_optimizer(optimizer, {**saved, "state": {**saved["state"], 1: {}}})
    with pytest.raises(KeyError, match="second"):
        restore_optimizer(optimizer, {**saved, "state": {0: {"step": 1, "first": torch.zeros(2)}}})
