"""Legal values that hardly anybody wants are told in one line each; those that can only be a mistake are refused."""

import pytest

import gymlab
from gymlab.config.derive import cores
from gymlab.errors import ConfigError


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"max_grad_norm": 0}, "max_grad_norm is 0: every gradient is scaled to 0"),
        ({"policy_lr": 0}, "policy_lr is 0"),
        ({"target_kl": 0}, "target_kl is 0"),
        ({"clip_range_vf": 0}, "clip_range_vf is 0: a value that has come closer"),
        ({"ent_coef": -0.1}, "ent_coef is -0.1"),
        ({"ent_coef": {"start": 0.1, "end": -0.2}}, "ent_coef is -0.2"),
        ({"replay_ratio": 9}, "replay_ratio is 9"),
        ({"eval_warmup_epochs": 391}, "eval_warmup_epochs is 391, and the run ends after 390 epochs"),
        ({"torch_threads": cores() + 1}, f"torch_threads is {cores() + 1}, and there are {cores()} cores"),
    ],
)
def test_each_is_told_once(fields, told):
    (notice,) = gymlab.resolve("CartPole-v1:ppo", **fields).notices
    assert notice.startswith(told)


@pytest.mark.parametrize(
    "fields",
    [
        {"policy_lr": {"start": 1e-3, "end": 0}},
        {"ent_coef": 0},
        {"replay_ratio": 8},
        {"eval_warmup_epochs": 390},
        {"max_grad_norm": None},
        {"clip_range_vf": {"start": 0.2, "end": 0}},
        {"torch_threads": cores()},
    ],
)
def test_what_makes_sense_is_not(fields):
    assert gymlab.resolve("CartPole-v1:ppo", **fields).notices == ()


@pytest.mark.parametrize("value", [0, {"start": 0, "end": 0}])
def test_a_clip_range_of_nothing_is_refused(value):
    with pytest.raises(ConfigError, match=r"`clip_range`: must be more than 0.* A schedule may end at 0"):
        gymlab.resolve("CartPole-v1:ppo", clip_range=value)
    assert gymlab.resolve("CartPole-v1:ppo", clip_range="lin_0.2").config.clip_range.end == 0


@pytest.mark.parametrize("steps", [50, {"start": 1, "end": 50}])
def test_a_plan_longer_than_what_is_learned_is_told_where_somebody_sets_it(steps):
    (notice,) = gymlab.resolve("Pendulum-v1:tdmpc2", plan_horizon=steps).notices
    assert notice.startswith("plan_horizon 50 is cut to horizon 3")
    for fields in ({}, {"plan_horizon": 3}, {"plan_horizon": 50, "horizon": 50}, {"plan_horizon": 100}, {"horizon": 2}):
        assert gymlab.resolve("Pendulum-v1:tdmpc2", **fields).notices == ()
