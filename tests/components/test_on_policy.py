import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymlab.components.analytic import StackedMLP
from gymlab.components.autograd import TorchPolicy
from gymlab.components.distributions import Categorical
from gymlab.components.flat import FlatParameters
from gymlab.components.observation import ObservationEncoder
from gymlab.components.on_policy import OnPolicyConfig, acting_policy, choose_actions, policy_network, yaml_switch

BOX = spaces.Box(-1, 1, (3,), np.float32)


def config(**settings):
    return OnPolicyConfig(env_id="x", algo_id="x", **settings)


def network(seed=0, **settings):
    return policy_network(config(**settings), ObservationEncoder(BOX), Categorical(2), seed)


def test_weights_come_from_the_seed_and_leave_torch_s_own_stream_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = network(1), network(1), network(2)
    assert torch.equal(torch.rand(1), expected)
    same = [torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(first.actor_head.weight, other.actor_head.weight)


def test_policy_kwargs_lie_over_an_algorithm_s_own_options():
    arguments = (ObservationEncoder(BOX), Categorical(2), 0)
    assert not policy_network(config(model_id="mlp_tiny"), *arguments, shared_trunk=False).spec.shared_trunk
    shared = config(policy_kwargs={"shared_trunk": True})
    assert policy_network(shared, *arguments, shared_trunk=False).spec.shared_trunk


@pytest.mark.parametrize(
    ("settings", "is_image", "kind", "why"),
    [
        ({}, False, StackedMLP, ""),
        ({"activation": "gelu"}, False, TorchPolicy, "gelu"),
        ({}, True, TorchPolicy, "images"),
        ({"precision": "bf16-mixed"}, False, TorchPolicy, "bf16-mixed"),
    ],
    ids=str,
)
def test_the_fastest_way_to_act(settings, is_image, kind, why):
    module = network(**settings)
    policy, obstacle = acting_policy(
        module, FlatParameters(module), config(**settings), is_image=is_image, device=torch.device("cpu"), fabric=None
    )
    assert type(policy) is kind
    assert why in obstacle
    assert bool(obstacle) == bool(why)


def test_the_likeliest_allowed_action_with_its_probability():
    logits = np.log(np.array([[0.6, 0.3, 0.1]], np.float32))
    mask = np.array([[False, True, True]])
    actions, extras = choose_actions(
        Categorical(3), logits, np.random.default_rng(0), deterministic=True, action_mask=mask
    )
    assert actions.tolist() == [1]
    np.testing.assert_allclose(extras["probabilities"], [[0, 0.75, 0.25]], rtol=1e-6)
    np.testing.assert_allclose(extras["log_prob"], np.log(0.75), rtol=1e-6)


def test_what_yaml_makes_of_off():
    assert [yaml_switch(value) for value in (False, True, "rollout")] == ["off", "batch", "rollout"]
