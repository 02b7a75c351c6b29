"""Bandits as the sheet says, alone and native."""

import numpy as np
import pytest

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_env, make_vector
from gymlab.envs.families.bandits import BANDITS, BanditEnv, BanditVector
from gymlab.errors import ConfigError, EnvironmentFailure


def test_defaults_of_one_bandit():
    bandit = BanditEnv()
    observation, info = bandit.reset(seed=0)
    np.testing.assert_array_equal(observation, np.zeros(10, dtype=np.float32))
    assert bandit.observation_space.contains(observation)
    assert info["n_arms"] == 10
    np.testing.assert_array_equal(info["means"], np.arange(10))
    np.testing.assert_array_equal(info["stds"], np.ones(10))
    observation, _, terminated, truncated, info = bandit.step(3)
    assert info == {"chosen_arm": 3, "optimal_arm": 9, "optimal_mean": 9.0, "is_success": False}
    assert (terminated, truncated) == (True, False)
    np.testing.assert_array_equal(observation, np.zeros(10))


def test_rewards_are_normal_around_the_mean_of_the_arm():
    bandit = BanditEnv(n_arms=2, means=[-1.0, 4.0], stds=[0.0, 2.0], episode_length=4000, seed=0)
    bandit.reset(seed=0)
    assert bandit.step(0)[1] == -1.0
    pulls = [bandit.step(1)[1] for _ in range(3000)]
    assert np.mean(pulls) == pytest.approx(4.0, abs=0.15)
    assert np.std(pulls) == pytest.approx(2.0, abs=0.1)


def test_episode_length():
    bandit = BanditEnv(episode_length=3)
    bandit.reset(seed=0)
    assert [bandit.step(0)[2] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("backend", ["native", "sync"])
def test_episodes_of_one_step_make_env_steps_equal_to_episodes(config, backend):
    vector = make_vector(config("Bandit-v0"), 4, SeedTree(0), backend=backend)
    vector.reset()
    env_steps = episodes = 0
    for _ in range(50):
        step = vector.step(np.array([0, 3, 9, 9]))
        env_steps += 4 if step.valid is None else int(step.valid.sum())
        episodes += len(step.episodes)
        assert step.terminated.all()
        assert [episode.env_return for episode in step.episodes] == pytest.approx(step.reward.tolist())
        assert list(step.info["chosen_arm"]) == [0, 3, 9, 9]
        assert list(step.info["optimal_arm"]) == [9] * 4
    assert env_steps == episodes == vector.episode_counts.sum() == 200


def test_native_has_the_same_distribution(config):
    vector = make_vector(
        config("Bandit-v0", env_kwargs={"n_arms": 3, "means": [0, 5, -5], "stds": [1, 0, 2]}), 3000, SeedTree(0)
    )
    assert isinstance(vector, BanditVector)
    assert vector.get_return_threshold() == 5.0
    vector.reset()
    reward = vector.step(np.repeat([0, 1, 2], 1000)).reward
    assert (reward[1000:2000] == 5.0).all()
    assert reward[:1000].mean() == pytest.approx(0.0, abs=0.15)
    assert reward[2000:].std() == pytest.approx(2.0, abs=0.15)


def test_native_continues_from_its_state(config):
    whole = make_vector(config("Bandit/long"), 2, SeedTree(0))
    whole.reset()
    for _ in range(130):
        whole.step(np.array([1, 2]))
    resumed = make_vector(config("Bandit/long"), 2, SeedTree(5))
    resumed.set_state(whole.get_state())
    for _ in range(90):
        expected, seen = whole.step(np.array([3, 4])), resumed.step(np.array([3, 4]))
        np.testing.assert_array_equal(seen.reward, expected.reward)
        assert seen.episodes == expected.episodes


@pytest.mark.parametrize("env_id", list(BANDITS))
def test_every_named_bandit_can_be_made_and_drawn(config, env_id):
    env = make_env(config(env_id), render_mode="rgb_array")
    env.reset(seed=0)
    quiet = env.render()
    env.step(0)
    chosen = env.render()
    assert chosen.dtype == np.uint8
    assert chosen.ndim == 3
    assert not np.array_equal(quiet, chosen)
    vector = make_vector(config(env_id), 2, SeedTree(0), render_mode="rgb_array")
    vector.reset()
    vector.step(np.array([1, 0]))
    assert vector.render().shape == chosen.shape


def test_higher_means_have_higher_bars():
    picture = BanditEnv(n_arms=2, means=[1.0, 2.0], render_mode="rgb_array").render()
    coloured = (picture != 255).any(axis=2)
    half = picture.shape[1] // 2
    assert coloured[:, :half].sum() < coloured[:, half:].sum()


def test_unknown_names_and_arguments_are_refused_by_name(config):
    with pytest.raises(EnvironmentFailure, match="Bandit/noisy"):
        make_env(config("Bandit/nosy"))
    with pytest.raises(ConfigError, match="n_arms"):
        make_env(config("Bandit-v0", env_kwargs={"narms": 3}))
    with pytest.raises(ConfigError, match="n_arms >= 2"):
        make_env(config("Bandit-v0", env_kwargs={"n_arms": 1}))
    with pytest.raises(ConfigError, match="3 means"):
        make_env(config("Bandit-v0", env_kwargs={"n_arms": 3, "means": [1, 2]}))
    vector = make_vector(config("Bandit-v0"), 1, SeedTree(0))
    vector.reset()
    with pytest.raises(EnvironmentFailure, match="arms 0 to 9"):
        vector.step(np.array([10]))
