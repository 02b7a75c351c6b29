"""Dead units, counted by hand."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymlab.components.analytic import StackedMLP
from gymlab.components.autograd import TorchPolicy
from gymlab.components.dead_units import DEAD, EVERY_EPOCHS, METRIC, ROWS, DeadUnits
from gymlab.components.distributions import distribution_for
from gymlab.components.flat import FlatParameters
from gymlab.components.networks import ACTIVATIONS, ActorCritic, NetworkSpec

CPU = torch.device("cpu")
OBSERVATIONS = np.array([[-1.0, 0.5], [0.0, 1.0], [1.0, 0.2]], np.float32)


def network(activation="relu", *, hidden_dims=(4,), input_shape=(2,), shared=False, **options):
    options = {"kind": "mlp", **options}
    spec = NetworkSpec(hidden_dims=hidden_dims, activation=activation, shared_trunk=shared, **options).resolved()
    return ActorCritic(input_shape, distribution_for(spaces.Discrete(2)), spec)


def both(made, **options):
    """Counted in numpy and in torch."""
    flat = FlatParameters(made)
    return [DeadUnits(policy, made, **options) for policy in (StackedMLP(made, flat), TorchPolicy(made, CPU))]


def set_layer(layer, weight, bias):
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))


def test_relu_units_that_are_zero_for_every_observation():
    made = network("relu")
    # Unit 0 sees x0 + 0.5: alive. Unit 1 sees x0 - 1: 0 even at x0 = 1. Unit 2 is constant 3: it is not zero. Unit 3 sees -x1.
    set_layer(made.actor_trunk.layers[0], [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, -1.0]], [0.5, -1.0, 3.0, 0.0])
    set_layer(made.critic_trunk.layers[0], [[1.0, 0.0]] * 4, [0.0] * 4)
    for counted in both(made):
        assert counted.share(OBSERVATIONS) == 2 / 8
    for counted in both(made, critic=False):
        assert counted.share(OBSERVATIONS) == 2 / 4


def test_tanh_units_that_are_saturated_on_one_side():
    made = network("tanh", shared=True)
    # tanh(2.64) = 0.9899, tanh(2.65) = 0.9901. Unit 3 is saturated at both ends, which is a switch and not dead.
    set_layer(made.trunk.layers[0], [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [50.0, 0.0]], [2.64, -2.65, -5.0, 0.0])
    for counted in both(made):
        assert counted.share(OBSERVATIONS[[0, 2]]) == 2 / 4
        assert counted.share(OBSERVATIONS[[2]]) == 3 / 4


@pytest.mark.parametrize(
    ("activation", "low", "high", "dead"),
    [
        ("elu", -0.999, -0.995, True),
        ("elu", -0.999, -0.5, False),
        ("gelu", -0.005, 0.0, True),
        ("gelu", -0.005, 0.3, False),
        ("silu", -0.2, 0.0, False),
        ("relu", 0.0, 0.0, True),
        ("relu", 0.0, 1e-6, False),
        ("tanh", -1.0, 1.0, False),
    ],
)
def test_each_activation_has_its_own_death(activation, low, high, dead):
    assert bool(DEAD[activation](np.array([low]), np.array([high]))[0]) is dead


def test_every_activation_is_known():
    assert DEAD.keys() == ACTIVATIONS.keys()


def test_a_channel_is_one_unit_of_a_convolution():
    made = network(
        "relu",
        kind="cnn",
        input_shape=(1, 8, 8),
        hidden_dims=(2,),
        shared=True,
        channels=(3,),
        kernel_sizes=(4,),
        strides=(4,),
    )
    convolution, linear = made.trunk.convolutions[0], made.trunk.head.layers[0]
    with torch.no_grad():
        convolution.weight.zero_()
        # Channel 0 sees the first pixel of each patch, channel 1 is always 1, channel 2 always below 0.
        convolution.weight[0, 0, 0, 0] = 1.0
        convolution.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
        linear.weight.zero_()
        linear.bias.copy_(torch.tensor([1.0, -1.0]))
    images = np.zeros((5, 1, 8, 8), np.uint8)
    images[3, 0, 4, 4] = 255
    counted = DeadUnits(TorchPolicy(made, CPU), made)
    assert counted.share(images) == 2 / 5
    assert counted.share(np.zeros_like(images)) == 3 / 5
    assert not made.trunk.convolutions[1]._forward_hooks


def test_looked_at_in_every_tenth_epoch_on_rows_spread_over_the_rollout(monkeypatch):
    counted = both(network())[0]
    seen = []
    monkeypatch.setattr(counted, "share", lambda observations: seen.append(observations[:, 0].tolist()) or 0.25)
    observations = np.arange(600, dtype=np.float32)[:, None]
    valid = np.arange(100, 600)
    told = [counted.metrics(observations, valid, epoch) for epoch in range(EVERY_EPOCHS + 1)]
    assert told == [{METRIC: 0.25}, *[{}] * (EVERY_EPOCHS - 1), {METRIC: 0.25}]
    assert seen[0] == list(range(100, 600, 2))
    assert len(seen[0]) <= ROWS


def test_a_network_without_hidden_units_has_no_share():
    for counted in both(network(hidden_dims=())):
        assert counted.metrics(OBSERVATIONS, np.arange(3), 0) == {}
