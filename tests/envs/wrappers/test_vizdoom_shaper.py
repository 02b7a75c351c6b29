"""Doom's shaping on a game of three buttons whose health, ammunition and reward are written here."""

import gymnasium as gym
import numpy as np
import pytest
from counting_env import Counting

from gymlab.envs.buttons import ButtonActions
from gymlab.envs.wrappers import VizDoom_RewardShaper
from gymlab.errors import ConfigError

BUTTONS = ["MOVE_LEFT", "TURN_LEFT", "ATTACK", "USE"]


class Game(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (1,), np.uint8)

    def __init__(self, story, actions="discrete"):
        self.buttons = ButtonActions(BUTTONS, actions)
        self.action_space = self.buttons.space
        self.pressed = []
        self.story = iter(story)

    def _tell(self):
        health, ammo, weapon, reward = next(self.story)
        return reward, {"health": health, "ammo": ammo, "weapon": weapon, "kills": 0.0}

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, dtype=np.uint8), self._tell()[1]

    def step(self, action):
        self.pressed = self.buttons.pressed(action)
        reward, info = self._tell()
        return np.zeros(1, dtype=np.uint8), reward, False, False, info


STILL = (100.0, 50.0, 2.0, 0.0)


@pytest.mark.parametrize(
    ("action", "bonus"), [(0, -0.005), (1, 0.002), (2, 0.003), (3, -0.1), (4, 0.0)], ids=["noop", *BUTTONS]
)
def test_by_the_button_of_a_discrete_action(action, bonus):
    env = VizDoom_RewardShaper(Game([STILL] * 2), turn_reward=0.003, attack_penalty=0.1)
    env.reset()
    _, reward, _, _, info = env.step(action)
    assert reward == pytest.approx(bonus)
    assert info["shaping_reward"] == pytest.approx(bonus)


@pytest.mark.parametrize(
    ("action", "bonus"), [([0, 0, 0, 0], -0.005), ([1, 1, 0, 0], 0.004), ([1, 0, 1, 1], 0.002 - 0.1)]
)
def test_by_the_buttons_of_a_multi_binary_action(action, bonus):
    env = VizDoom_RewardShaper(Game([STILL] * 2, "multi_binary"), attack_penalty=0.1)
    env.reset()
    assert env.step(np.array(action, dtype=np.int8))[1] == pytest.approx(bonus)


def test_wasted_ammunition_and_lost_health():
    story = [
        STILL,
        (100.0, 48.0, 2.0, 0.0),  # two rounds for nothing
        (70.0, 47.0, 2.0, 5.0),  # a round that paid, and 30 of health
        (90.0, 60.0, 2.0, -1.0),  # found some of both
        (90.0, 10.0, 3.0, -1.0),  # another weapon
        (90.0, 9.0, 3.0, -1.0),  # one round more of it
    ]
    env = VizDoom_RewardShaper(Game(story), 0, 0, 0, ammo_waste_penalty=0.5, health_loss_penalty=0.01)
    env.reset()
    rewards = [env.step(3)[1] for _ in range(5)]
    assert rewards == pytest.approx([-1.0, 5.0 - 0.3, -1.0, -1.0, -1.5])


def test_fits_doom_only():
    with pytest.raises(ConfigError, match="VizDoom only, not Counting"):
        VizDoom_RewardShaper(Counting())
