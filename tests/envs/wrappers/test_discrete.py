import gymnasium as gym
import numpy as np
import pytest
from counting_env import Counting

from gymlab.envs.wrappers import DiscreteEncoder
from gymlab.errors import ConfigError


class Number(Counting):
    """Shows one value of a Discrete space."""

    def __init__(self, value: int, count: int, start: int = 0):
        super().__init__()
        self.observation_space = gym.spaces.Discrete(count, start=start)
        self.value = value

    def _observation(self):
        return self.value


def encoded(encoding: str, value: int, count: int, start: int = 0) -> list[float]:
    env = DiscreteEncoder(Number(value, count, start), encoding=encoding)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    return observation.tolist()


def test_binary_has_the_least_significant_bit_first():
    assert encoded("binary", 3, 8) == [1, 1, 0]
    assert encoded("binary", 4, 8) == [0, 0, 1]
    assert encoded("binary", 6, 10) == [0, 1, 1, 0]


def test_one_hot_and_array():
    assert encoded("onehot", 2, 4) == [0, 0, 1, 0]
    assert encoded("array", 2, 4) == [2]


def test_values_count_from_the_start():
    assert encoded("onehot", 5, 3, start=4) == [0, 1, 0]
    assert encoded("binary", 7, 4, start=4) == [1, 1]


def test_a_single_value_still_has_a_bit():
    assert encoded("binary", 0, 1) == [0]


def test_wrong_spaces_and_encodings_are_refused():
    with pytest.raises(ConfigError, match="Discrete"):
        DiscreteEncoder(Counting())
    with pytest.raises(ConfigError, match="onehot"):
        DiscreteEncoder(Number(0, 2), encoding="gray")


def test_steps_are_encoded_like_resets():
    env = DiscreteEncoder(Number(1, 4), encoding="onehot")
    first, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.step(0)[0], first)
