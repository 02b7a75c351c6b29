"""Processes: the same rows as in one process, and exact resume. What happens when one fails is in test_restarts.py."""

import os
import signal

import numpy as np
import pytest
from counting_env import step_often

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector
from gymlab.envs.workers import AsyncVector
from gymlab.errors import ConfigError


@pytest.fixture
def workers(config):
    opened = []

    def make(env_id="CartPole-v1", count=2, **fields) -> AsyncVector:
        vector = make_vector(config(env_id, **fields), count, SeedTree(7), backend="async")
        assert isinstance(vector, AsyncVector)
        assert vector.backend == "async"
        opened.append(vector)
        return vector

    yield make
    for vector in opened:
        vector.close()


def plan(steps: int, count: int = 2) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (steps, count))


def test_equal_to_the_loop_in_one_process(workers, config):
    fields = {"env_wrappers": ({"id": "ActionRewardShaper", "rewards": [0.5, 0.0]},)}
    apart = workers(**fields)
    together = make_vector(config(**fields), 2, SeedTree(7), backend="sync")
    np.testing.assert_array_equal(apart.reset(), together.reset())
    for actions in plan(80):
        one, other = apart.step(actions), together.step(actions)
        assert one.valid is None
        for name in ("observation", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for index in np.flatnonzero(other.ended):
            np.testing.assert_array_equal(one.final_observation[index], other.final_observation[index])
        assert one.episodes == other.episodes
    assert together.episode_counts.sum() > 3
    np.testing.assert_array_equal(apart.episode_counts, together.episode_counts)


def test_continues_bit_for_bit_also_from_the_state_of_the_other_backend(workers, config):
    together = make_vector(config(), 2, SeedTree(7), backend="sync")
    together.reset()
    for actions in plan(33):
        together.step(actions)
    resumed = workers()
    resumed.set_state(together.get_state())
    np.testing.assert_array_equal(resumed.observation, together.observation)
    again = workers()
    again.set_state(resumed.get_state())
    for actions in plan(40):
        expected = together.step(actions)
        for vector in (resumed, again):
            step = vector.step(actions)
            np.testing.assert_array_equal(step.observation, expected.observation)
            assert step.episodes == expected.episodes
    assert resumed.resumable


def test_action_masks_and_new_seeds(workers, config, seeds):
    apart = workers("Taxi-v4", max_episode_steps=5)
    together = make_vector(config("Taxi-v4", max_episode_steps=5), 2, SeedTree(7), backend="sync")
    for reset_seeds in (None, seeds.child("evaluation")):
        np.testing.assert_array_equal(apart.reset(reset_seeds), together.reset(reset_seeds))
        np.testing.assert_array_equal(apart.action_mask, together.action_mask)
        for _ in range(8):
            step, expected = apart.step(np.array([0, 3])), together.step(np.array([0, 3]))
            np.testing.assert_array_equal(step.action_mask, expected.action_mask)


def test_workers_outlive_the_interrupt_that_stops_the_parent(workers):
    vector = workers()
    vector.reset()
    for worker in vector._workers:
        os.kill(worker.process.pid, signal.SIGINT)
        os.kill(worker.process.pid, signal.SIGTERM)
    step_often(vector, 2)
    assert vector.get_state()["environments"]["1"]["actions"].tolist() == [0, 0]


def test_close_ends_the_processes(workers):
    vector = workers()
    vector.close()
    assert not any(worker.process.is_alive() for worker in vector._workers)


def test_rendering_comes_from_environment_0(config):
    vector = make_vector(config("Counting-v0"), 2, SeedTree(0), backend="async", render_mode="rgb_array")
    vector.reset()
    assert vector.render().shape == (4, 4, 3)
    vector.close()


def test_wrappers_that_share_their_state_cannot_be_split(config):
    shared = config("MountainCar-v0", env_wrappers=({"id": "MountainCarV0_StateCountBonus"},))
    with pytest.raises(ConfigError, match=r"MountainCarV0_StateCountBonus.*sync"):
        make_vector(shared, 2, SeedTree(0), backend="async")


def test_workers_are_out_of_reach_of_the_terminals_interrupt(workers):
    groups = {os.getpgid(worker.process.pid) for worker in workers()._workers}
    assert len(groups | {os.getpgrp()}) == 3
