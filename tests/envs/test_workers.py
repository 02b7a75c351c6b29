"""Processes: the same rows as in one process, and exact resume. What happens when one fails is in test_restarts.py."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from counting_env import step_often

from gymlab.engine.seeding import SeedTree
from gymlab.envs import build, make_vector
from gymlab.envs.families.standard import StandardFamily
from gymlab.envs.pace import Pace
from gymlab.envs.step import Step
from gymlab.envs.worker import blocks_of
from gymlab.envs.workers import AsyncVector
from gymlab.errors import ConfigError


@pytest.fixture
def workers(config):
    opened = []

    def make(env_id="CartPole-v1", count=2, **fields) -> AsyncVector:
        # Nothing is left to be measured, unless a test says otherwise.
        fields = {"env_workers": count, "double_buffer": False, **fields}
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


@pytest.mark.parametrize(("count", "processes"), [(2, 2), (3, 1), (5, 2)])
def test_equal_to_the_loop_in_one_process(workers, config, count, processes):
    fields = {"env_wrappers": ({"id": "ActionRewardShaper", "rewards": [0.5, 0.0]},)}
    apart = workers(count=count, env_workers=processes, **fields)
    assert apart.num_workers == processes
    together = make_vector(config(**fields), count, SeedTree(7), backend="sync")
    np.testing.assert_array_equal(apart.reset(), together.reset())
    for actions in plan(80, count):
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
    resumed = workers(env_workers=2)
    resumed.set_state(together.get_state())
    np.testing.assert_array_equal(resumed.observation, together.observation)
    again = workers(env_workers=1)
    again.set_state(resumed.get_state())
    for actions in plan(40):
        expected = together.step(actions)
        for vector in (resumed, again):
            step = vector.step(actions)
            np.testing.assert_array_equal(step.observation, expected.observation)
            assert step.episodes == expected.episodes
    assert resumed.resumable


def test_no_worker_is_in_two_halves():
    assert blocks_of(5, 2) == [range(3), range(3, 5)]
    assert blocks_of(10, 4) == [range(3), range(3, 5), range(5, 8), range(8, 10)]
    assert blocks_of(4, 3) == [range(2), range(2, 3), range(3, 4)]


@pytest.mark.parametrize(
    ("count", "processes", "halves"), [(4, 2, (slice(0, 2), slice(2, 4))), (4, 1, ()), (3, 2, ()), (6, 3, ())]
)
def test_halves_are_offered_where_both_numbers_are_even(workers, count, processes, halves):
    assert workers(count=count, env_workers=processes).halves == halves


@pytest.mark.parametrize(("computing", "processes"), [(1.0, 2), (0.1, 8)])
def test_the_number_of_workers_follows_from_the_pace(workers, monkeypatch, computing, processes):
    monkeypatch.setattr(build, "cores", lambda: 2)
    monkeypatch.setattr(build, "measure_apart", lambda plan, timeout: Pace(0.002, computing))
    vector = workers(count=8, env_workers="auto")
    assert vector.num_workers == processes
    assert vector.pace == (0.002, computing)


def test_a_pace_that_is_known_is_not_measured_again(config, monkeypatch):
    monkeypatch.setattr(build, "cores", lambda: 2)
    monkeypatch.setattr(build, "measure_apart", lambda *arguments: pytest.fail("measured again"))
    with make_vector(config(), 4, SeedTree(7), backend="async", pace=Pace(0.002, 1.0)) as vector:
        assert vector.num_workers == 2


def test_a_family_of_one_environment_a_process(workers, config, monkeypatch):
    monkeypatch.setattr(StandardFamily, "one_a_process", True)
    assert workers(count=3, env_workers=1).num_workers == 3
    with make_vector(config("Blackjack-v1"), 1, SeedTree(0)) as vector:
        assert vector.backend == "async"
    with pytest.raises(ConfigError, match=r"sync is not possible for 2 environments of CartPole-v1: .*Use async"):
        make_vector(config(), 2, SeedTree(0), backend="sync")


def test_halves_by_turns_are_equal_to_all_at_once(workers, config):
    """Half 1 is always a step behind when half 0 is waited for, and actions masks and episodes are those of its rows."""
    fields = {"max_episode_steps": 5}
    apart, together = workers("Taxi-v4", count=4, env_workers=2, **fields), config("Taxi-v4", **fields)
    together = make_vector(together, 4, SeedTree(7), backend="sync")
    apart.reset()
    together.reset()
    actions = np.random.default_rng(0).integers(0, 4, (30, 4))
    behind = None
    for row in actions:
        apart.step_async(row[:2], 0)
        if behind is not None:
            assert_rows(apart.step_wait(1), behind, slice(2, 4))
        apart.step_async(row[2:], 1)
        behind = copied(together.step(row))
        assert_rows(apart.step_wait(0), behind, slice(0, 2))
    assert_rows(apart.step_wait(1), behind, slice(2, 4))
    np.testing.assert_array_equal(apart.observation, together.observation)
    np.testing.assert_array_equal(apart.action_mask, together.action_mask)
    # All at once, from where the halves stand.
    assert_rows(apart.step(actions[0]), together.step(actions[0]), slice(None))
    assert apart.get_state()["environments"]["3"]["episodes_finished"] == together.episode_counts[3] == 6


def copied(step: Step) -> Step:
    arrays = ("observation", "reward", "terminated", "truncated", "action_mask")
    return replace(step, **{name: getattr(step, name).copy() for name in arrays})


def assert_rows(step: Step, expected: Step, rows: slice) -> None:
    for name in ("observation", "reward", "terminated", "truncated", "action_mask"):
        np.testing.assert_array_equal(getattr(step, name), getattr(expected, name)[rows])
    indices = range(4)[rows]
    assert step.episodes == [episode for episode in expected.episodes if episode.env_index in indices]
    assert {key: list(values) for key, values in step.info.items()} == {
        key: list(values[rows]) for key, values in expected.info.items()
    }


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


ORPHANS = """
import os, sys, time
import gymnasium as gym
from counting_env import Counting
from gymlab.config.schema import Config
from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector

class Closing(Counting):
    def step(self, action):
        time.sleep(0.3)
        return super().step(action)

    def close(self):
        print("closed", flush=True)

gym.register("Closing-v0", entry_point=Closing)
config = Config(env_id="Closing-v0", algo_id="ppo", env_workers=2, double_buffer=False)
vector = make_vector(config, 4, SeedTree(0), backend="async")
vector.reset()
if sys.argv[1] == "stepping":
    vector._send(vector._whole, [0, 0, 0, 0])
    time.sleep(0.1)
os._exit(9)
"""


@pytest.mark.parametrize("moment", ["stepping", "idle"])
def test_workers_whose_parent_is_gone_close_their_environments_and_say_nothing(moment):
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    # Output ends when the last worker has: they hold the other ends.
    ended = subprocess.run(
        [sys.executable, "-c", ORPHANS, moment],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 9
    assert ended.stderr == ""
    # The example that was made to know the spaces, and four in workers.
    assert ended.stdout.split() == ["closed"] * 5
