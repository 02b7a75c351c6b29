"""Each shaper by numbers worked out by hand."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector
from gymlab.envs.wrappers import (
    CartPoleV1_RewardShaper,
    MountainCarV0_RewardShaper,
    MountainCarV0_StateCountBonus,
    WrapperContext,
)
from gymlab.errors import ConfigError


class Script(gym.Env):
    """Plays given observations; the last one terminates. Has CartPole's limits."""

    theta_threshold_radians = 0.2
    x_threshold = 2.0

    def __init__(self, *observations: list[float], terminates: bool = True) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (len(observations[0]),), np.float64)
        self.action_space = gym.spaces.Discrete(2)
        self.observations = [np.array(one) for one in observations]
        self.terminates = terminates
        self.at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.at = 0
        return self.observations[0], {}

    def step(self, action):
        self.at += 1
        last = self.at == len(self.observations) - 1
        return self.observations[self.at], 1.0, last and self.terminates, last and not self.terminates, {}


def test_cartpole_potential():
    # [x, x velocity, angle, angle velocity]; limits 2.0 and 0.2.
    env = CartPoleV1_RewardShaper(
        Script([1.0, 0, 0.1, 0], [0.0, 0, 0.05, 0], [3.0, 0, 0.0, 0], terminates=False), gamma=0.9
    )
    env.reset()
    _, reward, _, _, info = env.step(0)
    before = 1.0 * (1 - 0.5) + 0.25 * (1 - 0.5)
    after = 1.0 * (1 - 0.25) + 0.25 * (1 - 0.0)
    assert info["potential_prev"] == pytest.approx(before)
    assert info["potential_curr"] == pytest.approx(after)
    assert info["shaping_reward"] == pytest.approx(0.9 * after - before)
    assert reward == pytest.approx(1.0 + 0.9 * after - before)
    # x = 3 lies outside the limit: its term is cut at 0. The episode is only truncated, so the potential stays.
    _, reward, _, _, _ = env.step(0)
    assert reward == pytest.approx(1.0 + 0.9 * 1.0 - after)


def test_cartpole_potential_without_the_cut():
    env = CartPoleV1_RewardShaper(
        Script([0.0, 0, 0.0, 0], [4.0, 0, 0.0, 0], [0.0] * 4), clip_potential=False, gamma=1.0
    )
    env.reset()
    assert env.step(0)[1] == pytest.approx(1.0 + (1.0 + 0.25 * (1 - 2)) - 1.25)


def test_the_potential_of_a_terminal_state_is_zero_so_that_shaping_only_takes_back_the_first_potential():
    env = CartPoleV1_RewardShaper(Script([1.0, 0, 0.1, 0], [0.5, 0, 0.0, 0], [0.0, 0, 0.0, 0]), gamma=1.0)
    env.reset()
    shaping = [env.step(0)[4]["shaping_reward"] for _ in range(2)]
    assert sum(shaping) == pytest.approx(-(0.5 + 0.125))


def test_the_discount_comes_from_the_algorithm():
    env = CartPoleV1_RewardShaper(Script([0.0] * 4, [0.0] * 4, [0.0] * 4), context=WrapperContext(gamma=0.5))
    env.reset()
    assert env.step(0)[4]["shaping_reward"] == pytest.approx(0.5 * 1.25 - 1.25)


def test_mountain_car_potential():
    env = MountainCarV0_RewardShaper(Script([-0.5, 0.0], [-0.35, 0.07], [0.5, 0.0]), gamma=0.99)
    env.reset()
    _, reward, _, _, _ = env.step(0)

    def phi(position, velocity):
        return 100 * (position + 1.2) / 1.7 + 10 * (velocity + 0.07) / 0.14 + 50 * (math.sin(3 * position) + 1) / 2

    assert phi(-0.5, 0.0) == pytest.approx(46.239096)
    assert reward == pytest.approx(1.0 + 0.99 * phi(-0.35, 0.07) - phi(-0.5, 0.0))
    _, reward, terminated, _, _ = env.step(0)
    assert terminated
    assert reward == pytest.approx(1.0 - phi(-0.35, 0.07))


@pytest.mark.parametrize(
    ("bonus_type", "expected"),
    [
        ("count", [1.0, 1.0, 1 / math.sqrt(2), 1 / math.sqrt(3)]),
        ("inverse", [1.0, 1.0, 1 / 2, 1 / 3]),
        ("log", [1 / math.log(2), 1 / math.log(2), 1 / math.log(3), 1 / math.log(4)]),
    ],
)
def test_state_count_bonus(bonus_type, expected):
    same = [[-0.5, 0.0]] * 6
    env = MountainCarV0_StateCountBonus(Script(*same), bonus_scale=2.0, bonus_type=bonus_type)
    env.reset()
    # Visits before: 0 (taken as min_count 1), 1, 2, 3.
    assert [env.step(0)[1] for _ in range(4)] == pytest.approx([1.0 + 2.0 * bonus for bonus in expected])


def test_cells_of_the_table():
    corners = [[0.0, 0.0], [-1.2, -0.07], [0.6, 0.07], [-1.2 + 1.8 / 4 + 0.01, -0.01], [0.0, 0.0]]
    env = MountainCarV0_StateCountBonus(Script(*corners), position_bins=4, velocity_bins=2)
    env.reset()
    for _ in range(3):
        env.step(0)
    assert env.counts[0, 0] == env.counts[3, 1] == env.counts[1, 0] == 1
    assert env.counts.sum() == 3


def test_counts_are_shared_by_the_training_envs_and_absent_at_evaluation(config):
    counted = config("MountainCar-v0", env_wrappers=({"id": "MountainCarV0_StateCountBonus"},))
    vector = make_vector(counted, 3, SeedTree(0))
    assert vector.backend == "sync"
    vector.reset()
    for _ in range(5):
        vector.step(np.ones(3, dtype=int))
    tables = [env.env.counts for env in vector.envs]
    assert all(table is tables[0] for table in tables)
    assert tables[0].sum() == 15
    evaluation = make_vector(counted, 2, SeedTree(0), purpose="val")
    evaluation.reset()
    step = evaluation.step(np.ones(2, dtype=int))
    np.testing.assert_array_equal(step.reward, [-1, -1])


def test_the_table_of_counts_survives_resume_without_the_replay_counting_twice(config):
    counted = config("MountainCar-v0", env_wrappers=({"id": "MountainCarV0_StateCountBonus"},))
    vector = make_vector(counted, 3, SeedTree(0))
    vector.reset()
    for _ in range(5):
        vector.step(np.ones(3, dtype=int))
    resumed = make_vector(counted, 3, SeedTree(0))
    resumed.set_state(vector.get_state())
    assert resumed.envs[0].env.counts.sum() == 15
    np.testing.assert_array_equal(resumed.envs[0].env.counts, vector.envs[0].env.counts)


def test_unknown_bonus_is_refused():
    with pytest.raises(ConfigError, match="inverse"):
        MountainCarV0_StateCountBonus(Script([0.0, 0.0], [0.0, 0.0]), bonus_type="square")


@pytest.mark.parametrize(
    "wrapper", ["CartPoleV1_RewardShaper", "MountainCarV0_RewardShaper", "MountainCarV0_StateCountBonus"]
)
def test_shapers_of_another_environment_are_refused(config, wrapper):
    with pytest.raises(ConfigError, match=wrapper):
        make_vector(config("Acrobot-v1", env_wrappers=({"id": wrapper},)), 1, SeedTree(0))
