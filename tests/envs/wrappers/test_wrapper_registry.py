"""Wrappers by name, in the three forms of an entry, and what a plugin adds."""

import gymnasium as gym
import pytest
from counting_env import Counting

from gymlab.envs import make_env
from gymlab.envs.wrappers.registry import EnvWrapperRegistry, WrapperContext, apply_wrappers, parse_wrapper
from gymlab.errors import ConfigError


@pytest.mark.parametrize(
    ("entry", "kwargs"),
    [
        ("DiscreteEncoder", {}),
        ({"id": "DiscreteEncoder", "encoding": "onehot"}, {"encoding": "onehot"}),
        ({"DiscreteEncoder": {"encoding": "onehot"}}, {"encoding": "onehot"}),
        ({"DiscreteEncoder": None}, {}),
    ],
)
def test_forms_of_an_entry(entry, kwargs):
    assert parse_wrapper(entry) == ("DiscreteEncoder", kwargs)


def test_another_form_is_refused():
    with pytest.raises(ConfigError, match="expected a name"):
        parse_wrapper({"a": {}, "b": {}})


def test_unknown_wrapper_names_the_nearest(config):
    with pytest.raises(ConfigError, match="CartPoleV1_RewardShaper"):
        make_env(config(env_wrappers=({"id": "CartPoleV1_RewardShapper"},)))


def test_unknown_argument_names_the_nearest(config):
    with pytest.raises(
        ConfigError, match=r"env_wrappers of CartPole-v1.*no argument 'angle_scale'.*angle_reward_scale"
    ):
        make_env(config(env_wrappers=({"id": "CartPoleV1_RewardShaper", "angle_scale": 2},)))


def test_missing_argument_is_named(config):
    with pytest.raises(ConfigError, match="needs the argument 'rewards'"):
        make_env(config(env_wrappers=({"id": "ActionRewardShaper"},)))


def test_a_plugin_adds_its_own_and_order_is_kept(config):
    @EnvWrapperRegistry.register("TestPlugin_PlusOne")
    class PlusOne(gym.RewardWrapper):
        def reward(self, reward):
            return reward + 1

    @EnvWrapperRegistry.register
    class TestPlugin_Scaled(gym.RewardWrapper):
        def __init__(self, env, factor, context):
            super().__init__(env)
            self.factor = factor * (2 if context.purpose == "train" else 1)

        def reward(self, reward):
            return reward * self.factor

    entries = ["TestPlugin_PlusOne", {"TestPlugin_Scaled": {"factor": 10}}]
    env = apply_wrappers(Counting(), entries, WrapperContext(), "Counting-v0")
    env.reset(seed=0)
    assert env.step(0)[1] == (1 + 1) * 20
    assert "TestPlugin_Scaled" in EnvWrapperRegistry


def test_gamma_of_the_algorithm_reaches_shapers(config):
    class WithGamma(type(config())):
        gamma: float = 0.5

    env = make_env(WithGamma(env_id="CartPole-v1", algo_id="ppo", env_wrappers=({"id": "CartPoleV1_RewardShaper"},)))
    assert env.env.gamma == 0.5
