import copy
import math

import pytest
import torch
from torch import nn

from gymlab.components.flat import FlatParameters
from gymlab.components.optimizers import FlatOptimizer, descend, make_optimizer
from gymlab.errors import ConfigError, NonFiniteError


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(3, 2)
        self.actor_head = nn.Linear(2, 2)
        self.critic_head = nn.Linear(2, 1)


def flat_pair():
    torch.manual_seed(0)
    module = Parts()
    return FlatParameters(copy.deepcopy(module)), FlatParameters(module)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_steps_equal_those_of_torch(name):
    ours, theirs = flat_pair()
    stepper = FlatOptimizer(ours, make_optimizer(name, [ours.parameter], 0.1))
    reference = make_optimizer(name, [theirs.parameter], 0.1)
    for seed in range(5):
        gradient = torch.randn(len(ours.gradient), generator=torch.Generator().manual_seed(seed))
        ours.gradient.copy_(gradient)
        theirs.gradient.copy_(gradient)
        lr = 0.1 / (seed + 1)
        stepper.set_lr(lr)
        reference.param_groups[0]["lr"] = lr
        stepper.clip(0.5)
        torch.nn.utils.clip_grad_norm_([theirs.parameter], 0.5)
        stepper.step()
        reference.step()
        torch.testing.assert_close(ours.parameter, theirs.parameter, rtol=1e-5, atol=1e-7)
    assert str(stepper.optimizer.state_dict()["state"].keys()) == str(reference.state_dict()["state"].keys())


def test_state_that_was_loaded_is_used():
    ours, theirs = flat_pair()
    first = FlatOptimizer(theirs, make_optimizer("adamw", [theirs.parameter], 0.1))
    for flat_gradient in (1.0, -2.0):
        theirs.gradient.fill_(flat_gradient)
        first.step()
    second = FlatOptimizer(ours, make_optimizer("adamw", [ours.parameter], 0.1))
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    with torch.no_grad():
        ours.parameter.copy_(theirs.parameter)
    for flat, stepper in ((ours, second), (theirs, first)):
        flat.gradient.fill_(0.3)
        stepper.step()
    torch.testing.assert_close(ours.parameter, theirs.parameter, rtol=0, atol=0)


def test_norms_are_those_before_clipping():
    flat, _ = flat_pair()
    flat.gradient.fill_(1.0)
    stepper = FlatOptimizer(flat, make_optimizer("sgd", [flat.parameter], 0.1))
    assert stepper.part_names == ["trunk", "actor_head", "critic_head"]
    assert stepper.clip(0.5) == pytest.approx([math.sqrt(8), math.sqrt(6), math.sqrt(3)])
    assert flat.gradient.norm().item() == pytest.approx(0.5, rel=1e-4)
    flat.gradient.fill_(0.01)
    stepper.clip(0.5)
    assert torch.all(flat.gradient == 0.01)
    flat.gradient.fill_(9.0)
    stepper.clip(None)
    assert torch.all(flat.gradient == 9.0)


def test_adam_epsilon_and_unknown_names():
    parameter = nn.Parameter(torch.zeros(1))
    assert make_optimizer("adam", [parameter], 0.1).param_groups[0]["eps"] == 1e-5
    with pytest.raises(ConfigError, match="adamw"):
        make_optimizer("adamx", [parameter], 0.1)


def test_a_step_down_the_weighted_sum():
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    losses = {"first": parameter[0] * 3, "second": parameter[1] * 2}
    optimizer = torch.optim.SGD([parameter], 9.0)
    norm = descend(optimizer, losses, {"first": 1.0, "second": 2.0}, 0.1, clip_value=3.5)
    assert norm.item() == pytest.approx(5.0)
    assert parameter.tolist() == pytest.approx([1 - 0.1 * 3, 2 - 0.1 * 3.5])
    with pytest.raises(NonFiniteError, match="loss/second is not finite"):
        descend(
            optimizer, {"first": parameter[0], "second": parameter[1] * torch.nan}, {"first": 1.0, "second": 1.0}, 0.1
        )
    with pytest.raises(AssertionError):
        descend(optimizer, {"first": parameter[0]}, {"second": 1.0}, 0.1)
