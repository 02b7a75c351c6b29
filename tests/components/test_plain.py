"""The plainest parts, and that everything which ships can be built by its name."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from gymlab.components.plain import DeterministicMLP, Identity, RandomPolicy
from gymlab.config.targets import SHIPPED, instantiate
from gymlab.errors import ConfigError


def test_identity_is_the_vector_itself() -> None:
    x = torch.randn(3, 4)
    assert Identity(4)(x) is x
    assert Identity(4).decode(x) is x
    with pytest.raises(ValueError, match="vectors of 4"):
        Identity(4)(torch.zeros(3, 5))


def test_deterministic_dynamics_learn_a_line() -> None:
    torch.manual_seed(0)
    dynamics = DeterministicMLP(2, 1, hidden=32)
    optimizer = torch.optim.Adam(dynamics.parameters(), 1e-2)
    state, action = torch.randn(256, 2), torch.randn(256, 1)
    target, reward = state + torch.cat([action, -action], -1), state[:, 0]
    for _ in range(200):
        expected, paid = dynamics(state, action)
        loss = (expected - target).square().mean() + (paid - reward).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.02


def test_a_random_policy_is_even_and_goes_on_where_it_was() -> None:
    policy = RandomPolicy(seed=1)
    space = gym.spaces.Discrete(4)
    counts = np.bincount(policy(space, 4000), minlength=4)
    assert counts.min() > 900
    state = policy.get_state()
    first = policy(space, 10)
    other = RandomPolicy()
    other.set_state(state)
    np.testing.assert_array_equal(other(space, 10), first)


def test_names_of_what_ships() -> None:
    assert {"rssm", "block_gru", "two_hot", "lambda_return", "laprop", "deterministic_mlp", "random_policy"} <= set(
        SHIPPED
    )
    returns = instantiate({"_target_": "n_step_return", "steps": 2})
    reward = torch.tensor([9.0, 1.0, 2.0])
    assert returns(reward, torch.ones(3), torch.zeros(3)).tolist() == [3.0, 2.0]
    latent = instantiate({"_target_": "categorical_latent", "groups": 2, "classes": 3})
    assert latent.size == 6
    with pytest.raises(ConfigError, match="lambda_return"):
        instantiate({"_target_": "lambda_returns"})


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_every_name_leads_to_a_class(name: str) -> None:
    build = instantiate({"_target_": name, "_partial_": True})
    assert isinstance(build.func, type)
