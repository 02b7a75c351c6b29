"""What actions are called."""

import gymnasium as gym
import numpy as np
import pytest

from gymlab.envs.buttons import ButtonActions
from gymlab.envs.labels import action_labels, action_text
from gymlab.envs.wrappers.actions import DiscreteActionSpaceRemapperWrapper


class Pad(gym.Env):
    """A game with three buttons."""

    observation_space = gym.spaces.Discrete(1)

    def __init__(self, actions):
        self.buttons = ButtonActions(["MOVE_LEFT", "MOVE_RIGHT", "ATTACK"], actions)
        self.action_space = self.buttons.space


def test_labels_of_a_spec_are_counted_as_the_environment_counts():
    cart = gym.make("CartPole-v1")
    assert action_labels(cart, {"labels": {"0": "push left", 1: "push right"}}) == ["push left", "push right"]


def test_a_wrapper_that_renames_actions_renames_their_labels():
    env = DiscreteActionSpaceRemapperWrapper(gym.make("FrozenLake-v1"), [3, 0])
    assert action_labels(env, {"labels": {0: "left", 1: "down", 2: "right", 3: "up"}}) == ["up", "left"]


def test_environments_name_their_own_actions():
    assert action_labels(gym.make("FrozenLake-v1")) == ["left", "down", "right", "up"]
    assert action_labels(Pad("discrete")) == ["nothing", "move left", "move right", "attack"]
    assert action_labels(Pad([["ATTACK", "MOVE_LEFT"], []])) == ["move left and attack", "nothing"]
    assert action_labels(Pad("multi_binary")) == ["move left", "move right", "attack"]


def test_a_spec_for_another_number_of_actions_is_not_believed():
    assert action_labels(Pad("discrete"), {"labels": {0: "stay", 1: "go"}})[1] == "move left"


def test_numbers_where_nothing_is_known():
    class Unknown(gym.Env):
        observation_space = gym.spaces.Discrete(1)
        action_space = gym.spaces.Discrete(3, start=5)

    assert action_labels(Unknown()) == ["5", "6", "7"]


def test_actions_in_words():
    assert action_text(6, ["a", "b"], gym.spaces.Discrete(2, start=5)) == "b"
    assert action_text(np.array([1, 0, 1]), ["x", "y", "z"], gym.spaces.MultiBinary(3)) == "x + z"
    assert action_text(np.zeros(3), ["x", "y", "z"], gym.spaces.MultiBinary(3)) == "nothing"
    box = gym.spaces.Box(-1, 1, (2,))
    assert action_text(np.array([0.5, -1]), ["steering from -1 to 1", "gas"], box) == "steering +0.50, gas -1.00"


def test_atari_in_words():
    pytest.importorskip("ale_py")
    from gymlab.api import resolve
    from gymlab.envs.build import make_env

    env = make_env(resolve("ALE/Adventure-v5", algo="ppo").config)
    labels = action_labels(env)
    env.close()
    assert labels[:6] == ["noop", "fire", "up", "right", "left", "down"]
    assert labels[17] == "down left fire"
