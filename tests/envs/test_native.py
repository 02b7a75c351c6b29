"""The base of native environments, on one whose every number is known."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from counting_env import expected_transitions

from gymlab.engine.seeding import SeedTree
from gymlab.envs.native import NATIVE, NativeVector, register_native
from gymlab.envs.vector import EnvironmentSpec
from gymlab.errors import ConfigError, EnvironmentFailure

LENGTHS = np.array([3, 1, 4, 2, 5])


class CountingVector(NativeVector):
    """Counting, native; every episode terminates."""

    def __init__(self, num_envs: int, limit: int | None = None, seed: int = 0) -> None:
        super().__init__(
            EnvironmentSpec("Counting-v0", None, limit),
            num_envs,
            SeedTree(seed),
            "train",
            observation_space=gym.spaces.Box(-np.inf, np.inf, (1,), np.float32),
            action_space=gym.spaces.Discrete(3),
        )
        self.episode = np.full(num_envs, -1)
        self.count = np.zeros(num_envs, dtype=np.int64)

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"episode": self.episode, "count": self.count}

    def _begin(self, indices: np.ndarray) -> None:
        self.episode[indices] += 1
        self.count[indices] = 0

    def _advance(self, actions: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> dict[str, Any]:
        self.count += 1
        reward[...] = self.count
        terminated[...] = self.count == LENGTHS[self.episode % 5]
        return {}

    def _observe(self, turn: int) -> None:
        self._slots[turn].observation[:, 0] = 100 * self.episode + self.count

    def render(self) -> None:
        return None

    def close(self) -> None:
        return None


def collect(vector: NativeVector, steps: int):
    observation = vector.reset().copy()
    rows = []
    for _ in range(steps):
        step = vector.step(np.zeros(vector.num_envs, dtype=int))
        ended = bool(step.ended[0])
        final = float(step.final_observation[0, 0]) if ended else None
        flags = (bool(step.terminated[0]), bool(step.truncated[0]))
        rows.append((float(observation[0, 0]), float(step.reward[0]), *flags, final))
        observation = step.observation.copy()
    return rows


def test_rows_are_those_of_the_environment():
    assert collect(CountingVector(2), 60) == expected_transitions(0, 60, kinds=(0,))


def test_termination_wins_at_the_limit_and_the_limit_cuts_the_rest():
    rows = collect(CountingVector(1, limit=3), 7)
    # Episode 0 ends by itself at 3, episode 1 at 1; episode 2 of length 4 is cut at 3.
    assert [row[2:4] for row in rows] == [(False, False)] * 2 + [(True, False)] * 2 + [(False, False)] * 2 + [
        (False, True)
    ]
    assert rows[-1][4] == 203.0


def test_returns_and_numbers_of_episodes():
    vector = CountingVector(3)
    vector.reset()
    episodes = [episode for _ in range(10) for episode in vector.step(np.zeros(3, dtype=int)).episodes]
    assert [episode[:5] for episode in episodes if episode.env_index == 2] == [
        (2, 0, 6.0, 6.0, 3),
        (2, 1, 1.0, 1.0, 1),
        (2, 2, 10.0, 10.0, 4),
        (2, 3, 3.0, 3.0, 2),
    ]
    np.testing.assert_array_equal(vector.episode_counts, [4, 4, 4])


def test_state_of_another_number_of_environments_is_refused():
    with pytest.raises(ConfigError, match="has 2 environments, this one 3"):
        CountingVector(3).set_state(CountingVector(2).get_state())


def test_a_state_saved_before_the_first_reset_changes_nothing():
    vector = CountingVector(1)
    vector.set_state(CountingVector(1).get_state())
    assert collect(vector, 20) == expected_transitions(0, 20, kinds=(0,))


def test_registered_by_id():
    register_native("Counting-test")(CountingVector)
    assert NATIVE.pop("Counting-test") is CountingVector


def test_negative_actions_do_not_count_from_the_end_and_large_ones_are_no_negative_ones():
    vector = CountingVector(2)
    vector.reset()
    with pytest.raises(
        EnvironmentFailure, match=r"Counting-v0 takes actions of Discrete\(3\), not array\(\[ 0, -1\]\)"
    ):
        vector.step(np.array([0, -1]))
    vector.step(np.array([0, 255]))
