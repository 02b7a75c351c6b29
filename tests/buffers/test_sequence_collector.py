"""Records of what environments lived through, in every mode of resetting them."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gymlab.buffers.sequence_collector import SequenceCollector, record_fields
from gymlab.envs.step import Step


class Count(gym.Env):
    """Counts its steps from 10 times the episode's number; every other episode is cut after 3 steps, the others end after 2."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        cut = self.episode % 2 == 1
        return self._look(), float(self.steps), not cut and self.steps == 2, cut and self.steps == 3, {}

    def _look(self):
        return np.array([10 * self.episode + self.steps], np.float32)


class Vector:
    """Just enough of a vector environment, in one mode of resetting."""

    num_envs = 1
    action_mask = None

    def __init__(self, mode: AutoresetMode) -> None:
        self.mode = mode
        self.env = SyncVectorEnv([Count], autoreset_mode=mode, copy=True)
        self.dead = np.zeros(1, bool)

    def reset(self):
        self.observation = self.env.reset()[0]

    def step(self, actions):
        observation, reward, terminated, truncated, info = self.env.step(actions)
        self.observation = observation
        ended = terminated | truncated
        if self.mode is AutoresetMode.SAME_STEP:
            final = np.array([info["final_obs"][0]]) if ended.any() else None
            return Step(observation, reward.astype(np.float32), terminated, truncated, final)
        valid = ~self.dead
        self.dead = ended
        return Step(observation, reward.astype(np.float32), terminated, truncated, valid=valid)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_every_observation_is_one_record(mode: AutoresetMode) -> None:
    acted_on = []

    def act(parts, is_first, mask):
        acted_on.append((parts["vector"][0, 0].item(), bool(is_first[0])))
        return np.array([[0.0, 1.0]], np.float32), {"latent/x": np.full((1, 2), 7, np.float32)}

    collector = SequenceCollector(
        Vector(mode),
        lambda observation: {"vector": observation},
        lambda actions: actions.argmax(-1),
        2,
        {"latent/x": ((2,), np.float32)},
    )
    steps = 7 if mode is AutoresetMode.SAME_STEP else 9
    records, _, transitions = collector.collect(act, steps)
    assert transitions == 7
    rows = {name: np.concatenate([record.values[name] for record in records]) for name in records[0].values}
    # Episode 0 ends after 2 steps, episode 1 is cut after 3, episode 2 ends after 2.
    assert rows["observation/vector"][:, 0].tolist() == [0, 1, 2, 10, 11, 12, 13, 20, 21, 22]
    assert rows["reward"].tolist() == [0, 1, 2, 0, 1, 2, 3, 0, 1, 2]
    assert rows["is_first"].tolist() == [True, False, False, True, False, False, False, True, False, False]
    assert rows["is_last"].tolist() == [False, False, True, False, False, False, True, False, False, True]
    assert rows["is_terminal"].tolist() == [False, False, True, False, False, False, False, False, False, True]
    assert rows["action"][:, 1].tolist() == [1, 1, 0, 1, 1, 1, 0, 1, 1, 0]
    assert rows["latent/x"][:, 0].tolist() == [7, 7, 0, 7, 7, 7, 0, 7, 7, 0]
    assert [value for value, first in acted_on if first] == [0, 10, 20]


def test_a_collector_goes_on_where_another_stopped() -> None:
    def act(parts, is_first, mask):
        return np.array([[1.0, 0.0]], np.float32), {}

    def collector():
        return SequenceCollector(
            Vector(AutoresetMode.SAME_STEP), lambda x: {"vector": x}, lambda a: a.argmax(-1), 2, {}
        )

    first = collector()
    first.collect(act, 4)
    second = collector()
    second.set_state(first.get_state())
    second.environment = first.environment
    records, _, _ = second.collect(act, 1)
    assert records[0].values["reward"].tolist() == [2.0]
    shares = second.time_shares(1.0)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_a_restart_begins_a_new_episode_that_owes_nothing_to_the_old_one() -> None:
    def act(parts, is_first, mask):
        return np.array([[1.0, 0.0]], np.float32), {}

    collector = SequenceCollector(
        Vector(AutoresetMode.SAME_STEP), lambda x: {"vector": x}, lambda a: a.argmax(-1), 2, {}
    )
    collector.collect(act, 1)
    collector.restart()
    (record,), _, _ = collector.collect(act, 1)
    assert record.values["observation/vector"].tolist() == [[10.0]]
    assert record.values["is_first"].tolist() == [True]
    assert record.values["reward"].tolist() == [0.0]


def test_pictures_are_stored_in_bytes() -> None:
    fields = record_fields({"image": (3, 8, 8), "vector": (4,)}, 2)
    assert fields["observation/image"].dtype == np.uint8
    assert fields["observation/vector"].dtype == np.float32
    assert fields["action"].shape == (2,)
