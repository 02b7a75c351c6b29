"""Super Mario's shaping, reckoned by hand on a script of the game's variables."""

import gymnasium as gym
import numpy as np
import pytest
from counting_env import Counting

from gymlab.envs.wrappers import RetroSuperMarioBros_RewardShaper
from gymlab.errors import ConfigError


class Script(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (1,), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, *script):
        self.script = iter(script)

    def _info(self):
        x, score, lives, level, ended = next(self.script)
        high, low = divmod(x, 256)
        return {
            "xscrollHi": high,
            "xscrollLo": low,
            "score": score,
            "lives": lives,
            "levelHi": 0,
            "levelLo": level,
        }, ended

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, dtype=np.uint8), self._info()[0]

    def step(self, action):
        info, ended = self._info()
        return np.zeros(1, dtype=np.uint8), 1000.0, ended, False, info


START = (250, 0, 2, 0, False)


@pytest.mark.parametrize(
    ("then", "reward"),
    [
        ((260, 0, 2, 0, False), 0.01 * (10 - 0.1)),  # over the byte's edge
        ((245, 0, 2, 0, False), 0.01 * (-5 - 0.1)),
        ((150, 0, 2, 0, False), 0.01 * (-100 - 0.1)),  # as far as counts
        ((149, 0, 2, 0, False), 0.01 * -0.1),  # farther is a change of level
        ((351, 0, 2, 0, False), 0.01 * -0.1),
        ((250, 200, 2, 0, False), 0.01 * (0.1 * 200 - 0.1)),
        ((0, 0, 1, 0, False), 0.01 * (-150 - 0.1)),  # a life lost
        ((250, 0, -1, 0, True), 0.01 * (-150 - 0.1)),  # the last one
        ((0, 0, 2, 1, False), 0.01 * (50 - 0.1)),  # the next level
        ((250, 0, 2, 0, True), 0.01 * (50 - 0.1)),  # the end, with no life lost
    ],
)
def test_replaces_the_reward(then, reward):
    env = RetroSuperMarioBros_RewardShaper(Script(START, then))
    env.reset()
    _, shaped, _, _, info = env.step(0)
    assert shaped == pytest.approx(reward)
    assert info["shaping_reward"] == shaped


def test_scales_are_arguments():
    env = RetroSuperMarioBros_RewardShaper(
        Script(START, (290, 10, 1, 0, False)), 2.0, -7.0, 9.0, -0.5, 3.0, 0.2, x_reset_threshold=-40
    )
    env.reset()
    assert env.step(0)[1] == pytest.approx(2.0 * (3.0 * 40 - 0.5 - 7.0 + 0.2 * 10))


def test_another_game_is_refused_by_the_variable_it_lacks():
    with pytest.raises(ConfigError, match="no xscrollHi"):
        RetroSuperMarioBros_RewardShaper(Counting()).reset(seed=0)
