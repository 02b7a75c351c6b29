import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymlab.components.analytic import AnalyticGradient, StackedMLP
from gymlab.components.autograd import AutogradGradient, TorchPolicy
from gymlab.components.distributions import distribution_for
from gymlab.components.flat import FlatParameters
from gymlab.components.minibatch import Coefficients, Minibatch
from gymlab.components.networks import build_policy
from gymlab.workflows.ppo import surrogate_loss

SPACES = {
    "discrete": spaces.Discrete(3),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "multi-binary": spaces.MultiBinary(3),
    "continuous": spaces.Box(-1, 1, (2,), np.float32),
}


def setting(space, *, masked=False, size=400, **network_settings):
    """A network whose policy has moved away from the one that acted, and a batch that meets every branch of the loss."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    distribution = distribution_for(space)
    network = build_policy((5,), distribution, is_image=False, **network_settings)
    for p in network.parameters():
        p.data += 0.3 * torch.randn_like(p)
    flat = FlatParameters(network)
    x = rng.normal(size=(size, 5)).astype(np.float32)
    parameters, values = StackedMLP(network, flat)(x)
    masks = None
    if masked:
        masks = rng.random((size, distribution.head_size)) < 0.7
        masks[:, 0] = True
        masks[:, -1] = True
        if isinstance(space, spaces.MultiDiscrete):
            masks[:, 3] = True
        parameters = distribution.mask(parameters, masks)
    actions = distribution.sample(parameters, distribution.noise(rng, (size,)))
    old = distribution.log_prob(parameters, actions) + rng.normal(scale=0.4, size=size).astype(np.float32)
    advantages, returns, value_moves = rng.normal(size=(3, size)).astype(np.float32)
    value_moves[::2] *= 0.05  # half of the values within the clip range, half outside
    batch = Minibatch(x, actions, old, advantages, returns, values + 0.5 * value_moves, masks)
    return network, flat, distribution, batch


def gradients(network, flat, distribution, batch, coefficients):
    """(gradient, statistics) of the written-out way and of autograd in float64."""
    statistics = AnalyticGradient(network, flat, distribution)(batch, coefficients)
    analytic = {name: p.grad.clone() for name, p in network.named_parameters()}
    exact = copy.deepcopy(network).double()
    exact.zero_grad()
    tensors = batch.to_torch(torch.device("cpu"))
    for name in ("observations", "log_probs", "advantages", "returns", "values"):
        setattr(tensors, name, getattr(tensors, name).double())
    loss, exact_statistics = surrogate_loss(*exact(tensors.observations), tensors, coefficients, distribution)
    loss.backward()
    return analytic, {name: p.grad for name, p in exact.named_parameters()}, statistics, exact_statistics


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("shared_trunk", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("clip_range_vf", [None, 0.2])
def test_gradient_equals_autograd(space, activation, shared_trunk, clip_range_vf):
    parts = setting(space, activation=activation, policy_kwargs={"shared_trunk": shared_trunk})
    coefficients = Coefficients(0.2, clip_range_vf, 0.7, 0.05)
    analytic, exact, statistics, exact_statistics = gradients(*parts, coefficients)
    for name, gradient in exact.items():
        np.testing.assert_allclose(analytic[name], gradient, rtol=1e-4, atol=1e-6, err_msg=name)
        assert gradient.abs().max() > 1e-4, f"{name} has no gradient to compare"
    np.testing.assert_allclose(statistics, exact_statistics, rtol=1e-4, atol=1e-6)
    assert 0.1 < statistics[4] < 0.9, "the batch must meet the clip"


@pytest.mark.parametrize("space", [SPACES["discrete"], SPACES["multi-discrete"], SPACES["multi-binary"]])
@pytest.mark.parametrize("ent_coef", [0.0, 0.1])
def test_gradient_with_masks(space, ent_coef):
    parts = setting(space, masked=True)
    analytic, exact, statistics, exact_statistics = gradients(*parts, Coefficients(0.2, None, 0.5, ent_coef))
    for name, gradient in exact.items():
        np.testing.assert_allclose(analytic[name], gradient, rtol=1e-4, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(statistics, exact_statistics, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("hidden_dims", [(), (7,), (8, 6, 5)])
def test_any_depth(hidden_dims):
    parts = setting(SPACES["discrete"], hidden_dims=hidden_dims)
    analytic, exact, _, _ = gradients(*parts, Coefficients(0.2, 0.2, 0.5, 0.01))
    for name, gradient in exact.items():
        np.testing.assert_allclose(analytic[name], gradient, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("shared_trunk", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_acting_equals_the_torch_network(space, shared_trunk):
    network, flat, _, batch = setting(space, policy_kwargs={"shared_trunk": shared_trunk})
    ours = StackedMLP(network, flat)
    theirs = TorchPolicy(network, torch.device("cpu"))
    for a, b in zip(ours(batch.observations), theirs(batch.observations), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.actor(batch.observations), theirs.actor(batch.observations), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.critic(batch.observations), theirs.critic(batch.observations), rtol=1e-5, atol=1e-6)


def test_what_is_learned_is_acted_on_at_once():
    network, flat, _, batch = setting(SPACES["discrete"])
    acting = StackedMLP(network, flat)
    with torch.no_grad():
        flat.parameter.zero_()
        network.critic_head.bias.fill_(2.0)
    assert np.all(acting.actor(batch.observations) == 0)
    assert np.all(acting.critic(batch.observations) == 2)


def test_batches_of_changing_size():
    network, flat, distribution, batch = setting(SPACES["discrete"])
    gradient = AnalyticGradient(network, flat, distribution)
    coefficients = Coefficients(0.2, None, 0.5, 0.0)
    gradient(batch, coefficients)
    whole = flat.gradient.clone()
    halves = []
    for part in (slice(0, 200), slice(200, 400)):
        columns = (batch.observations, batch.actions, batch.log_probs, batch.advantages, batch.returns, batch.values)
        gradient(Minibatch(*(column[part] for column in columns)), coefficients)
        halves.append(flat.gradient.clone())
    torch.testing.assert_close((halves[0] + halves[1]) / 2, whole, rtol=1e-4, atol=1e-6)


def test_eager_gradient_fills_the_same_memory():
    network, flat, distribution, batch = setting(SPACES["discrete"])
    coefficients = Coefficients(0.2, 0.2, 0.5, 0.01)
    expected_statistics = AnalyticGradient(network, flat, distribution)(batch, coefficients)
    expected = flat.gradient.clone()
    eager = AutogradGradient(network, flat, lambda *arguments: surrogate_loss(*arguments, distribution))
    for _ in range(2):
        statistics = eager(batch, coefficients)
    torch.testing.assert_close(flat.gradient, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(statistics, expected_statistics, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"activation": "gelu"}, "tanh and relu"), ({}, "")],
)
def test_fits_says_why_not(settings, reason):
    network = build_policy((4,), distribution_for(SPACES["discrete"]), is_image=False, **settings)
    found = StackedMLP.fits(network, FlatParameters(network))
    assert (found == "") == (reason == "")
    assert reason in found
