"""Crafter in Gymnasium's language, and what it tells about its episodes."""

import numpy as np
import pytest

from gymlab.envs import make_env, make_vector
from gymlab.envs.families import family_of
from gymlab.errors import ConfigError, EnvironmentFailure

pytest.importorskip("crafter")
SMALL = {"area": [24, 24], "size": [18, 18]}
NOOP, PLACE_TABLE = 0, 8


def test_ids():
    for name in ("Crafter-v1", "CrafterReward-v1", "CrafterNoReward-v1"):
        assert family_of(name).resolve(name) == name
    with pytest.raises(EnvironmentFailure, match="Crafter-v1"):
        family_of("Crafter-v2").resolve("Crafter-v2")


def test_pictures_and_actions(config):
    env = make_env(config("Crafter-v1"))
    observation, _ = env.reset(seed=0)
    assert observation.shape == (3, 64, 64)
    assert env.action_space.n == 17


def test_the_time_limit_truncates_and_the_episode_tells_its_achievements(config, seeds):
    fields = config("Crafter-v1", env_kwargs=SMALL, max_episode_steps=3)
    with make_vector(fields, 1, seeds, backend="sync") as vector:
        vector.reset()
        game = vector.envs[0].unwrapped._game
        game._player.inventory["wood"] = 9
        x, y = game._player.pos
        game._world[x, y + 1] = "grass"
        assert vector.step(np.array([PLACE_TABLE])).reward[0] == 1.0
        vector.step(np.array([NOOP]))
        step = vector.step(np.array([NOOP]))
    (episode,) = step.episodes
    assert step.truncated[0]
    assert len(episode.told) == 22
    assert [name for name, unlocked in episode.told.items() if unlocked] == ["achievement/place_table"]


def test_death_terminates(config, seeds):
    with make_vector(config("Crafter-v1", env_kwargs=SMALL), 1, seeds, backend="sync") as vector:
        vector.reset()
        vector.envs[0].unwrapped._game._player.health = 0
        step = vector.step(np.array([NOOP]))
    assert step.terminated[0]


def test_without_rewards(config):
    env = make_env(config("CrafterNoReward-v1", env_kwargs=SMALL))
    env.reset(seed=0)
    env.unwrapped._game._player.health -= 1
    assert env.step(NOOP)[1] == 0.0


def test_a_look_changes_nothing(config):
    # At step 270 of a day it is night, which is drawn with random numbers.
    seen = []
    for look in (False, True):
        env = make_env(config("Crafter-v1", env_kwargs=SMALL), render_mode="rgb_array")
        env.reset(seed=4)
        env.unwrapped._game._step = 270
        for _ in range(3):
            observation = env.step(NOOP)[0]
            if look:
                assert env.render().shape == (504, 504, 3)
        seen.append(observation)
    np.testing.assert_array_equal(*seen)


def test_wrong_arguments_are_named(config):
    with pytest.raises(ConfigError, match="max_episode_steps"):
        make_env(config("Crafter-v1", env_kwargs={"length": 100}))
