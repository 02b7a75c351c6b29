import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymlab.components.analytic import StackedMLP
from gymlab.components.autograd import TorchPolicy
from gymlab.components.distributions import Categorical
from gymlab.components.flat import FlatParameters
from gymlab.components.observation import ObservationEncoder
from gymlab.components.on_policy import (
    OnPolicyConfig,
    acting_policy,
    check_decay,
    choose_actions,
    make_optimizers,
    policy_network,
    yaml_switch,
)
from gymlab.errors import CheckpointError, ConfigError

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


def parts():
    return {"policy": [torch.nn.Parameter(torch.zeros(2))], "value": [torch.nn.Parameter(torch.zeros(2))]}


RATES = {"policy": 0.1, "value": 0.2}


def test_optimizers_decay_by_what_is_set_and_by_nothing_else():
    for settings, kind, decay in (
        ({}, torch.optim.AdamW, 0.0),
        ({"weight_decay": 0.1}, torch.optim.AdamW, 0.1),
        ({"optimizer": "adam"}, torch.optim.Adam, 0.0),
        ({"optimizer": "sgd", "weight_decay": 0.3}, torch.optim.SGD, 0.3),
    ):
        made = make_optimizers(config(**settings), parts(), RATES, {})
        assert {name: optimizer.param_groups[0]["lr"] for name, optimizer in made.items()} == RATES
        for optimizer in made.values():
            assert type(optimizer) is kind
            assert optimizer.param_groups[0]["weight_decay"] == decay
            assert optimizer.param_groups[0].get("eps", 1e-5) == 1e-5


def test_an_optimizer_of_the_experiment_is_taken_by_its_name():
    made = make_optimizers(config(), parts(), RATES, {"value": torch.optim.Rprop})
    assert (type(made["policy"]), type(made["value"])) == (torch.optim.AdamW, torch.optim.Rprop)
    with pytest.raises(ConfigError, match=r"optimizers\.polcy: Did you mean 'policy'\? x has: policy, value"):
        make_optimizers(config(), parts(), RATES, {"polcy": torch.optim.Rprop})


def test_a_decay_that_no_optimizer_would_read_is_refused():
    own = {"policy": {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 1e-3}}
    assert config(optimizers=own).weight_decay == 0
    with pytest.raises(
        ValueError, match=r"weight_decay 0\.1 is of the optimizer.*write weight_decay there, below optimizers\.policy"
    ):
        config(optimizers=own, weight_decay=0.1)
    with pytest.raises(ValueError, match="weight_decay"):
        config(weight_decay=-0.1)
    with pytest.raises(ValueError, match="weight_decay"):
        config(weight_decay={"start": 0.1})


def test_what_an_earlier_release_decayed_by():
    """It wrote every key but this one, and torch's AdamW took 0.01."""
    assert OnPolicyConfig.unwritten({"optimizer": "adamw", "optimizers": {}}) == {"weight_decay": 0.01}
    for written in (
        {"optimizer": "adamw", "weight_decay": 0.0},
        {"optimizer": "adam"},
        {"optimizer": "sgd"},
        {"optimizer": "adamw", "optimizers": {"policy": {"_target_": "torch.optim.AdamW", "_partial_": True}}},
    ):
        assert OnPolicyConfig.unwritten(written) == {}


def test_a_checkpoint_with_another_decay_is_refused():
    made = make_optimizers(config(weight_decay=0.01), parts(), RATES, {})
    check_decay(config(weight_decay=0.01), made)
    with pytest.raises(CheckpointError, match=r"trained with 0\.01, and the run's config says 0\. Put 0\.01 there"):
        check_decay(config(), made)
