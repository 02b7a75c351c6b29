import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymlab.components.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    distribution_for,
)
from gymlab.errors import ConfigError

SPACES = {
    "discrete": spaces.Discrete(4),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi-binary": spaces.MultiBinary(3),
    "continuous": spaces.Box(-1, 1, (2,), np.float32),
}


def batch_for(space, size=64, seed=0):
    """A distribution, random parameters and actions sampled from it."""
    rng = np.random.default_rng(seed)
    distribution = distribution_for(space)
    parameters = rng.normal(size=(size, distribution.parameter_size)).astype(np.float32)
    return distribution, parameters, distribution.sample(parameters, distribution.noise(rng, (size,)))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_numpy_and_torch_agree_with_torch_distributions(space):
    distribution, parameters, actions = batch_for(space)
    log_prob, entropy = distribution.log_prob_and_entropy(parameters, actions)
    assert log_prob.shape == entropy.shape == (64,)
    assert log_prob.dtype == entropy.dtype == np.float32
    tensors = torch.from_numpy(parameters), torch.from_numpy(actions)
    torch_log_prob, torch_entropy = distribution.log_prob_and_entropy(*tensors)
    np.testing.assert_allclose(log_prob, torch_log_prob, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(entropy, torch_entropy, rtol=1e-5, atol=1e-5)
    reference_log_prob, reference_entropy = reference(distribution, *tensors)
    np.testing.assert_allclose(log_prob, reference_log_prob, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(entropy, reference_entropy, rtol=1e-4, atol=1e-5)


def reference(distribution, parameters, actions):
    peer = torch.distributions
    if isinstance(distribution, Categorical):
        parts = [(peer.Categorical(logits=parameters), actions)]
    elif isinstance(distribution, MultiCategorical):
        parts = [(peer.Categorical(logits=parameters[:, s]), actions[:, k]) for k, s in enumerate(distribution.slices)]
    elif isinstance(distribution, Bernoulli):
        bernoulli = peer.Independent(peer.Bernoulli(logits=parameters), 1)
        parts = [(bernoulli, actions.float())]
    else:
        mean, log_std = parameters.chunk(2, dim=-1)
        parts = [(peer.Independent(peer.Normal(mean, log_std.exp()), 1), actions)]
    return sum(part.log_prob(a) for part, a in parts), sum(part.entropy() for part, _ in parts)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_pullback_equals_autograd(space):
    distribution, parameters, actions = batch_for(space)
    d_log_prob = np.random.default_rng(1).normal(size=64).astype(np.float32)
    log_prob, entropy, pullback = distribution.with_gradient(parameters, actions)
    np.testing.assert_allclose(log_prob, distribution.log_prob(parameters, actions), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(entropy, distribution.log_prob_and_entropy(parameters, actions)[1], rtol=1e-5, atol=1e-6)
    for d_entropy in (0.0, 0.3):
        leaf = torch.from_numpy(parameters).double().requires_grad_()
        torch_log_prob, torch_entropy = distribution.log_prob_and_entropy(leaf, torch.from_numpy(actions))
        (torch_log_prob @ torch.from_numpy(d_log_prob).double() + d_entropy * torch_entropy.sum()).backward()
        np.testing.assert_allclose(pullback(d_log_prob, d_entropy), leaf.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", [SPACES["discrete"], SPACES["multi-discrete"], SPACES["multi-binary"]])
def test_samples_follow_the_probabilities(space):
    distribution = distribution_for(space)
    rng = np.random.default_rng(0)
    parameters = rng.normal(size=distribution.parameter_size).astype(np.float32)
    actions = distribution.sample(parameters, distribution.noise(rng, (20_000,)))
    probabilities = distribution.probabilities(parameters[None])[0]
    if isinstance(distribution, Categorical):
        frequency = np.bincount(actions, minlength=4) / len(actions)
    elif isinstance(distribution, MultiCategorical):
        counts = [np.bincount(actions[:, k], minlength=size) for k, size in enumerate((3, 2, 4))]
        frequency = np.concatenate(counts) / len(actions)
    else:
        frequency = actions.mean(axis=0)
    np.testing.assert_allclose(frequency, probabilities, atol=0.015)


def test_gaussian_numbers():
    distribution = DiagonalGaussian(spaces.Box(-1, 1, (1,), np.float32))
    log_prob, entropy = distribution.log_prob_and_entropy(np.zeros((1, 2), np.float32), np.array([[0.5]], np.float32))
    assert log_prob.item() == pytest.approx(-1.043939, abs=1e-6)
    assert entropy.item() == pytest.approx(1.418939, abs=1e-6)
    assert distribution.probabilities(np.zeros((1, 2), np.float32)) is None


def test_gaussian_samples_have_the_given_moments_and_are_not_clipped():
    distribution = DiagonalGaussian(spaces.Box(-1, 1, (2,), np.float32))
    parameters = np.array([0.5, -0.5, math.log(2.0), math.log(0.5)], np.float32)
    actions = distribution.sample(parameters, distribution.noise(np.random.default_rng(0), (50_000,)))
    np.testing.assert_allclose(actions.mean(axis=0), [0.5, -0.5], atol=0.03)
    np.testing.assert_allclose(actions.std(axis=0), [2.0, 0.5], rtol=0.02)
    assert actions.max() > 1
    assert distribution.to_environment(actions).max() == 1
    np.testing.assert_array_equal(distribution.mode(parameters[None]), [[0.5, -0.5]])


def test_uniform_entropy_is_ln_n():
    _, entropy = Categorical(6).log_prob_and_entropy(np.zeros((2, 6), np.float32), np.zeros(2, int))
    np.testing.assert_allclose(entropy, math.log(6), rtol=1e-6)


def test_masked_actions_are_impossible_and_have_no_gradient():
    distribution = Categorical(4)
    rng = np.random.default_rng(0)
    mask = np.array([[True, False, True, False]] * 32)
    logits = distribution.mask(rng.normal(size=(32, 4)).astype(np.float32), mask)
    assert np.all(distribution.probabilities(logits)[:, [1, 3]] == 0)
    actions = distribution.sample(logits, distribution.noise(rng, (32,)))
    assert set(actions) == {0, 2}
    assert set(distribution.mode(logits)) <= {0, 2}
    valid_only = Categorical(2).log_prob_and_entropy(np.ascontiguousarray(logits[:, ::2]), actions // 2)
    np.testing.assert_allclose(distribution.log_prob_and_entropy(logits, actions), valid_only, rtol=1e-5)
    _, _, pullback = distribution.with_gradient(logits, actions)
    gradient = pullback(np.ones(32, np.float32), 0.5)
    assert np.all(gradient[:, [1, 3]] == 0)
    assert np.any(gradient[:, [0, 2]] != 0)
    leaf = torch.zeros(32, 4, requires_grad=True)
    masked = distribution.mask(leaf, torch.from_numpy(mask))
    log_prob, entropy = distribution.log_prob_and_entropy(masked, torch.from_numpy(actions))
    (log_prob + entropy).sum().backward()
    assert torch.all(leaf.grad[:, [1, 3]] == 0)


def test_masked_switches_stay_off():
    distribution = Bernoulli(spaces.MultiBinary(2))
    logits = distribution.mask(np.full((8, 2), 5.0, np.float32), np.array([True, False]))
    actions = distribution.sample(logits, distribution.noise(np.random.default_rng(0), (8,)))
    assert np.all(actions[:, 1] == 0)
    log_prob, entropy, pullback = distribution.with_gradient(logits, actions)
    assert np.all(np.isfinite(log_prob))
    assert np.all(np.isfinite(entropy))
    assert np.all(pullback(np.ones(8, np.float32), 1.0)[:, 1] == 0)


def test_continuous_actions_refuse_a_mask():
    distribution = DiagonalGaussian(spaces.Box(-1, 1, (1,), np.float32))
    parameters = np.zeros((1, 2), np.float32)
    assert distribution.mask(parameters, None) is parameters
    with pytest.raises(ConfigError, match="cannot be masked"):
        distribution.mask(parameters, np.ones((1, 1), bool))


def test_actions_are_given_as_the_space_counts_them():
    assert distribution_for(spaces.Discrete(3, start=-1)).to_environment(np.array([0, 2])).tolist() == [-1, 1]
    grid = distribution_for(spaces.MultiDiscrete([[2, 3], [4, 5]]))
    assert grid.action_shape == (4,)
    assert grid.to_environment(np.zeros((7, 4), int)).shape == (7, 2, 2)
    box = spaces.Box(np.array([[-1.0, 0.0]]), np.array([[1.0, 2.0]]), dtype=np.float64)
    clipped = distribution_for(box).to_environment(np.array([[-3.0, 5.0]], np.float32))
    np.testing.assert_array_equal(clipped, [[[-1.0, 2.0]]])
    assert clipped.dtype == np.float64


def test_a_space_without_distribution_is_named():
    with pytest.raises(ConfigError, match="Text"):
        distribution_for(spaces.Text(3))
