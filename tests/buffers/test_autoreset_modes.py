"""Whatever the autoreset mode of the vector environment, what is trained on is the same (pitfalls A1-A6)."""

import numpy as np
import pytest
from counting_env import Counting
from fake_policies import LinearPolicy
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gymlab.buffers.collector import RolloutCollector
from gymlab.components.distributions import distribution_for
from gymlab.components.observation import ObservationEncoder
from gymlab.components.returns import gae
from gymlab.engine.seeding import SeedTree
from gymlab.envs.adapter import GymnasiumVector
from gymlab.envs.vector import EnvironmentSpec

ROWS = 12


def training_rows(mode):
    """The first valid rows of each environment with everything that the loss sees of them."""
    vector = SyncVectorEnv([lambda shift=shift: Counting(shift) for shift in (0, 1, 3)], autoreset_mode=mode)
    environment = GymnasiumVector(vector, EnvironmentSpec("Counting-v0"), SeedTree(0))
    distribution = distribution_for(environment.action_space)
    collector = RolloutCollector(
        environment,
        ObservationEncoder(environment.observation_space),
        distribution,
        LinearPolicy(distribution.parameter_size),
        np.random.default_rng(0),
        steps=40,
    )
    rollout, _ = collector.collect(40)
    next_values = rollout.next_values(rollout.values, rollout.bootstrap_values)
    advantages = gae(rollout.rewards, rollout.values, next_values, rollout.terminated, rollout.truncated, 0.9, 0.8)
    valid = np.ones_like(rollout.terminated) if rollout.valid is None else rollout.valid
    columns = (rollout.observations, rollout.rewards, rollout.terminated, rollout.truncated, rollout.values, advantages)
    return [[column[valid[:, env], env][:ROWS] for column in columns] for env in range(3)]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_training_tensors_are_those_of_same_step(mode):
    expected = training_rows(AutoresetMode.SAME_STEP)
    for env, columns in enumerate(training_rows(mode)):
        for column, reference in zip(columns, expected[env], strict=True):
            np.testing.assert_allclose(column, reference, rtol=1e-6)
    assert any(columns[2].any() for columns in expected)
    assert any(columns[3].any() for columns in expected)
