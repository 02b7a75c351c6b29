"""Ids that Gymnasium knows, has retired, or has never heard of; packages that are not there."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from gymlab.envs import make_env
from gymlab.envs.families import family_of
from gymlab.errors import ConfigError, EnvironmentFailure


def test_the_family_with_the_longest_prefix_wins():
    assert family_of("CartPole-v1").name == "gymnasium"
    assert family_of("Bandit-v0").name == "bandits"
    assert family_of("Bandit/close").name == "bandits"


def test_unknown_id_names_the_nearest(config):
    with pytest.raises(EnvironmentFailure, match=r"Unknown environment 'CartPol-v1'.*CartPole-v1"):
        make_env(config("CartPol-v1"))


def test_a_version_that_does_not_exist_yet_is_unknown(config):
    with pytest.raises(EnvironmentFailure, match="CartPole-v9"):
        make_env(config("CartPole-v9"))


@pytest.mark.parametrize("env_id", ["/etc/passwd", "CartPole-v1\n", "\0", "a b", "", "ALE/../Pong-v5"])
def test_an_id_of_another_form_is_unknown_like_any_other(config, env_id):
    with pytest.raises(EnvironmentFailure, match="Unknown"):
        make_env(config(env_id))


@pytest.mark.parametrize(("retired", "newest"), [("LunarLander-v2", "LunarLander-v3"), ("Taxi-v3", "Taxi-v4")])
def test_a_retired_id_becomes_the_newest_with_a_notice(retired, newest, caplog):
    from gymlab.envs.families.standard import _notice_retired

    _notice_retired.cache_clear()
    assert family_of(retired).resolve(retired) == newest
    assert f"using {newest}" in caplog.text


def test_a_config_cannot_import_a_module(config):
    assert "antigravity" not in sys.modules
    with pytest.raises(ConfigError, match="--plugin antigravity"):
        make_env(config("antigravity:CartPole-v1"))
    assert "antigravity" not in sys.modules


def test_a_loaded_module_may_be_named(config):
    assert make_env(config("counting_env:Counting-v0")).observation_space.shape == (1,)


def test_wrong_arguments_are_named(config):
    with pytest.raises(ConfigError, match=r"CartPole-v1 does not take env_kwargs.*wheels"):
        make_env(config(env_kwargs={"wheels": 4}))


def test_missing_package_gives_the_pip_line():
    code = (
        "import sys; sys.modules['Box2D'] = None\n"
        "from gymlab.config.schema import Config\n"
        "from gymlab.envs import make_env\n"
        "from gymlab.errors import GymlabError\n"
        "try:\n    make_env(Config(env_id='LunarLander-v3', algo_id='ppo'))\n"
        "except GymlabError as error:\n    print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'gymlab[box2d]'" in told
    assert "LunarLander-v3" in told


def test_spec_is_read_without_making_the_environment():
    family = family_of("CartPole-v1")
    spec = family.spec("CartPole-v1", {})
    assert (spec.reward_threshold, spec.max_episode_steps) == (475.0, 500)
    assert "CartPole-v1" in family.ids()
    assert family.has_vector("CartPole-v1")
    assert not family.has_vector("Acrobot-v1")


def test_gymnasiums_vector_version_is_used_where_ours_is_not(config, seeds):
    from gymlab.envs import make_vector

    gym.register(
        "Other-v0",
        entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
        vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
        max_episode_steps=30,
    )
    vector = make_vector(config("Other-v0"), 2, seeds)
    assert vector.backend == "native"
    assert not vector.resumable
    vector.reset()
    limited = make_vector(config("Other-v0", max_episode_steps=4), 2, seeds)
    limited.reset()
    for _ in range(3):
        step = limited.step(np.array([0, 1]))
    assert not step.ended.any()
    assert limited.step(np.array([0, 1])).truncated.all()
    gym.registry.pop("Other-v0")
