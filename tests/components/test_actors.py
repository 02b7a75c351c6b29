"""Distributions of actions that agents dream with: densities and entropies against torch's own, samples, and the environment's units."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymlab.components.actors import (
    Choices,
    NormalActions,
    SquashedNormalActions,
    TanhNormalActions,
    TruncatedNormalActions,
    action_distribution,
)
from gymlab.errors import ConfigError

BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))


def parameters(count: int = 4, size: int = 4) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(0))


def test_choices_have_the_probabilities_of_their_logits() -> None:
    actions = Choices(spaces.Discrete(3, start=5))
    logits = torch.tensor([[1.0, 0.0, -1.0]])
    expected = torch.distributions.Categorical(logits=logits)
    one_hot = torch.tensor([[0.0, 1.0, 0.0]])
    torch.testing.assert_close(actions.log_prob(logits, one_hot), expected.log_prob(torch.tensor([1])))
    torch.testing.assert_close(actions.entropy(logits), expected.entropy())
    assert actions.mode(logits).tolist() == [[1, 0, 0]]
    assert actions.to_environment(one_hot.numpy()).tolist() == [6]
    assert actions.from_environment(np.array([6])).tolist() == [[0, 1, 0]]


def test_the_even_share_of_choices() -> None:
    actions = Choices(spaces.Discrete(4), unimix=0.02)
    logits = torch.tensor([[100.0, 0.0, 0.0, 0.0]])
    assert actions.shown(logits)["probabilities"][0].tolist() == pytest.approx([0.985, 0.005, 0.005, 0.005], abs=1e-5)
    assert actions.log_prob(logits, torch.eye(4)[1:2]).item() == pytest.approx(math.log(0.005), abs=1e-4)


def test_choices_come_as_often_as_they_are_likely_and_gradients_go_straight_through() -> None:
    actions = Choices(spaces.MultiDiscrete([2, 3]))
    logits = torch.tensor([0.0, 1.0, 1.0, 0.0, -1.0])
    torch.manual_seed(0)
    samples = actions.sample(logits.expand(40_000, -1), actions.noise(40_000))
    expected = torch.cat([logits[:2].softmax(-1), logits[2:].softmax(-1)])
    torch.testing.assert_close(samples.mean(0), expected, atol=0.01, rtol=0)
    moving = logits[None].clone().requires_grad_()
    (actions.sample(moving, actions.noise(1))[0, 2:] @ torch.tensor([1.0, 2.0, 3.0])).backward()
    assert moving.grad is not None
    assert moving.grad[0, 2:].tolist() == pytest.approx([-0.282587, 0.140770, 0.141817], abs=1e-5)
    assert actions.to_environment(samples[:1].numpy()).shape == (1, 2)
    numbers = np.array([[1, 2], [0, 0]])
    np.testing.assert_array_equal(actions.to_environment(actions.from_environment(numbers)), numbers)


def test_forbidden_choices_are_never_made() -> None:
    actions = Choices(spaces.Discrete(3), unimix=0.5)
    masked, logits = actions.masked(torch.zeros(2000, 3), np.array([[True, False, True]]).repeat(2000, 0))
    torch.manual_seed(0)
    assert masked.sample(logits, masked.noise(2000)).sum(0)[1] == 0
    assert masked.shown(logits)["probabilities"][0].tolist() == pytest.approx([0.5, 0, 0.5])


def test_normal_actions() -> None:
    actions, raw = NormalActions(BOX), parameters()
    mean, std = actions.moments(raw)
    assert actions.moments(torch.zeros(1, 4))[1][0, 0].item() == pytest.approx(0.9 / (1 + math.exp(-2)) + 0.1)
    expected = torch.distributions.Normal(mean, std)
    action = parameters(4, 2)
    torch.testing.assert_close(actions.log_prob(raw, action), expected.log_prob(action).sum(-1))
    torch.testing.assert_close(actions.entropy(raw), expected.entropy().sum(-1))
    torch.testing.assert_close(actions.sample(raw, torch.ones(4, 2)), mean + std)


def test_truncated_normal_actions_stay_within_their_bounds_and_integrate_to_one() -> None:
    actions = TruncatedNormalActions(spaces.Box(-1, 1, (1,)))
    raw = torch.tensor([[0.7, -0.4]])
    grid = torch.linspace(-0.9999, 0.9999, 20_001).unsqueeze(-1)
    density = actions.log_prob(raw.expand(len(grid), -1), grid).exp()
    assert torch.trapezoid(density, grid.squeeze(-1)).item() == pytest.approx(1.0, abs=1e-3)
    entropy = -torch.trapezoid(density * density.log(), grid.squeeze(-1))
    assert actions.entropy(raw).item() == pytest.approx(entropy.item(), abs=1e-3)
    torch.manual_seed(0)
    samples = actions.sample(raw.expand(50_000, -1), actions.noise(50_000))
    assert samples.abs().max() < 1
    mean = torch.trapezoid(density * grid.squeeze(-1), grid.squeeze(-1))
    assert samples.mean().item() == pytest.approx(mean.item(), abs=0.01)


def test_tanh_normal_actions() -> None:
    actions = TanhNormalActions(spaces.Box(-1, 1, (1,)))
    assert actions.moments(torch.zeros(1, 2))[1].item() == pytest.approx(5.0, abs=1e-3)
    raw = torch.tensor([[0.5, -5.0]])
    mean, std = actions.moments(raw)
    normal = torch.distributions.Normal(mean, std)
    expected = torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform()])
    action = torch.tensor([[0.3]])
    torch.testing.assert_close(actions.log_prob(raw, action), expected.log_prob(action).sum(-1), atol=1e-5, rtol=1e-5)
    torch.manual_seed(0)
    samples = actions.sample(raw.expand(100_000, -1), actions.noise(100_000))
    monte_carlo = -actions.log_prob(raw.expand(100_000, -1), samples).mean()
    assert actions.entropy(raw).item() == pytest.approx(monte_carlo.item(), abs=0.01)


@pytest.mark.parametrize(
    ("mean", "std", "mode"),
    [
        (0.3, 0.2, 0.314139),  # x = 0.325131
        (-0.3, 0.2, -0.314139),
        (0.5, 1.0, 0.985840),  # x = 2.471680; tanh(mean) would be 0.462
        (0.0, 1.0, 0.957504),  # x = 1.915008
        (0.0, 0.5, 0.0),
        (-1.0, 5.0, -1.0),
    ],
)
def test_the_mode_of_tanh_normal_actions_is_where_their_density_is_largest(
    mean: float, std: float, mode: float
) -> None:
    actions = TanhNormalActions(spaces.Box(-1, 1, (1,)))
    actions.moments = lambda parameters: (torch.full((1, 1), mean), torch.full((1, 1), std))  # type: ignore[method-assign]
    found = actions.mode(torch.zeros(1, 2))
    assert found.item() == pytest.approx(mode, abs=2e-5)
    # The authors take the most likely of 100 samples; of 10,000 none is more likely.
    torch.manual_seed(0)
    samples = actions.sample(torch.zeros(1, 2), actions.noise(10_000))
    likeliest = actions.log_prob(torch.zeros(1, 2), samples).max()
    assert actions.log_prob(torch.zeros(1, 2), found).item() >= likeliest.item() - 1e-4


def test_modes_of_the_other_distributions() -> None:
    raw = torch.tensor([[0.7, -3.0, 2.0, 2.0]])
    for kind in (NormalActions, TruncatedNormalActions, SquashedNormalActions):
        expected = [math.tanh(0.7), math.tanh(-3.0)]
        assert kind(BOX).mode(raw)[0].tolist() == pytest.approx(expected), kind


@pytest.mark.parametrize("kind", ["normal", "truncated_normal", "tanh_normal"])
def test_continuous_actions_are_scaled_to_the_environment_and_back(kind: str) -> None:
    actions = action_distribution(BOX, kind, 0.0)  # type: ignore[arg-type]
    vectors = np.array([[-1.0, -1.0], [0.0, 0.5], [1.0, 3.0]], np.float32)
    sent = actions.to_environment(vectors)
    np.testing.assert_allclose(sent, [[-2, 0], [0, 7.5], [2, 10]])
    np.testing.assert_allclose(actions.from_environment(sent), np.clip(vectors, -1, 1), atol=1e-6)
    shown = actions.shown(torch.zeros(1, 4))
    np.testing.assert_allclose(shown["mean"], [[0, 5]])
    generator = np.random.default_rng(0)
    assert np.abs(actions.random(generator, 100)).max() <= 1
    moved = actions.explore(torch.zeros(100, 2), 0.3, generator)
    assert moved.std().item() == pytest.approx(0.3, abs=0.05)
    assert actions.explore(torch.ones(1, 2), 0.0, generator).tolist() == [[1, 1]]


def test_a_share_of_choices_is_random() -> None:
    actions = Choices(spaces.Discrete(2))
    generator = np.random.default_rng(0)
    action = torch.tensor([[1.0, 0.0]]).repeat(4000, 1)
    changed = actions.explore(action, 0.4, generator)[:, 1].mean().item()
    assert changed == pytest.approx(0.2, abs=0.03)


def test_spaces_that_cannot_be_dreamt_of() -> None:
    with pytest.raises(ConfigError, match="no bounds"):
        NormalActions(spaces.Box(-np.inf, np.inf, (1,)))
    with pytest.raises(ConfigError, match="can be dreamt of"):
        action_distribution(spaces.MultiBinary(3), "normal", 0.0)


@pytest.mark.parametrize(("size", "gradient"), [(1, 6.0), (6, 36.0), (38, 228.0)])
def test_the_scaled_entropy_grows_with_the_dimensions_and_does_not_pull_the_mean(size: int, gradient: float) -> None:
    actions = SquashedNormalActions(spaces.Box(-1, 1, (size,)))
    mean = torch.full((1, size), 2.0, requires_grad=True)
    raw = torch.zeros(1, size, requires_grad=True)
    entropy = actions.scaled_entropy(torch.cat([mean, raw], -1))
    # Dimensions times the entropy of the Normal before tanh, whose log deviation is -10 + 6 (tanh 0 + 1) = -4.
    assert entropy.item() == pytest.approx(size * size * (0.5 + 0.5 * math.log(2 * math.pi) - 4), rel=1e-5)
    entropy.sum().backward()
    # Each log deviation weighs once for every dimension; its slope at 0 is 6.
    assert raw.grad[0].tolist() == pytest.approx([gradient] * size)
    assert mean.grad is None or not mean.grad.any()


def test_the_scaled_entropy_of_choices_counts_each_of_them() -> None:
    actions = Choices(spaces.MultiDiscrete([2, 4]))
    assert actions.scaled_entropy(torch.zeros(1, 6)).item() == pytest.approx(2 * (math.log(2) + math.log(4)))
