import copy
import math

import pytest
import torch
from torch import nn

from gymlab.components.flat import FlatParameters
from gymlab.components.optimizers import FlatOptimizer, descend, make_optimizer, optimizer_text, restore_optimizer
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


# One weight of 2, lr 0.1, gradients 1e-5 and then 3e-5: as small as epsilon, which therefore counts.
# Adam, first step:  m^ = g, v^ = g^2          0.1 * 1e-5 / (1e-5 + 1e-5)                 = 0.05
# Adam, second step: m^ = 3.9e-6 / 0.19        m^ = 2.052632e-5
#                    v^ = 9.999e-13 / 0.001999 sqrt(v^) = 2.236516e-5
#                                              0.1 * 2.052632e-5 / (2.236516e-5 + 1e-5)   = 0.06342100
# Decay 0.1, adamw:  the weight is multiplied by 1 - 0.1 * 0.1 = 0.99 before each step.
# Decay 0.1, adam:   the gradient is 1e-5 + 0.1 * 2 = 0.20001, the step 0.1 * 0.20001 / 0.20002; then
#                    g = 3e-5 + 0.1 * 1.900005 = 0.1900305, m^ = (0.9 * 0.020001 + 0.1 * g) / 0.19 = 0.1947571,
#                    sqrt(v^) = 0.1950797, the step 0.1 * 0.1947571 / 0.1950897 = 0.09982951
# Decay 0.1, sgd:    2 - 0.1 * 0.20001; then the gradient is 3e-5 + 0.1 * 1.979999.
@pytest.mark.parametrize(
    ("name", "weight_decay", "first", "second"),
    [
        ("adam", 0.0, 1.95, 1.95 - 0.063421),
        ("adamw", 0.0, 1.95, 1.95 - 0.063421),
        ("adamw", 0.1, 1.98 - 0.05, 0.99 * 1.93 - 0.063421),
        ("adam", 0.1, 1.900005, 1.900005 - 0.0998295),
        ("sgd", 0.0, 1.999999, 1.999996),
        ("sgd", 0.1, 1.979999, 1.979999 - 0.1 * 0.1980299),
    ],
)
def test_two_steps_by_hand(name, weight_decay, first, second):
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 2.0)
    flat = FlatParameters(module)
    decay = {"weight_decay": weight_decay} if weight_decay else {}
    stepper = FlatOptimizer(flat, make_optimizer(name, [flat.parameter], 0.1, **decay))
    for gradient, expected in ((1e-5, first), (3e-5, second)):
        flat.gradient.fill_(gradient)
        stepper.step()
        assert module.weight.item() == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        (
            make_optimizer("adamw", [nn.Parameter(torch.zeros(1))], 0.1),
            "AdamW, eps 1e-05, weight decay 0 (so it is Adam)",
        ),
        (make_optimizer("adamw", [nn.Parameter(torch.zeros(1))], 0.1, 0.1), "AdamW, eps 1e-05, weight decay 0.1"),
        (make_optimizer("adam", [nn.Parameter(torch.zeros(1))], 0.1), "Adam, eps 1e-05, weight decay 0"),
        (make_optimizer("sgd", [nn.Parameter(torch.zeros(1))], 0.1), "SGD, weight decay 0"),
        (torch.optim.AdamW([nn.Parameter(torch.zeros(1))]), "AdamW, eps 1e-08, weight decay 0.01"),
        (torch.optim.Rprop([nn.Parameter(torch.zeros(1))]), "Rprop, no weight decay"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_optimizer_in_words(optimizer, text):
    assert optimizer_text(optimizer) == text


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


def test_how_an_optimizer_computes_is_no_part_of_its_state():
    parameter = nn.Parameter(torch.ones(3))
    saved, optimizer = (make_optimizer("adam", [parameter], 0.1) for _ in range(2))
    parameter.grad = torch.ones(3)
    saved.step()
    state = saved.state_dict()
    state["param_groups"][0].update(fused=None, maximize=True, amsgrad=True, lr=0.2)
    restore_optimizer(optimizer, state)
    group = optimizer.param_groups[0]
    assert (group["fused"], group["maximize"], group["amsgrad"], group["lr"]) == (True, False, False, 0.2)
    assert optimizer.state[parameter]["step"] == 1
    optimizer.step()
    assert (parameter < 1).all()
