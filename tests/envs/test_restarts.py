"""Failed environments: replaced, their episode cut off and marked, the others untouched, and not without end (pitfall A10)."""

import os
import signal
import time

import gymnasium as gym
import numpy as np
import pytest
from failing_env import Failing

from gymlab.engine.seeding import SeedTree
from gymlab.envs import build, make_vector, workers
from gymlab.envs.pace import UNKNOWN
from gymlab.envs.restarts import MOST_IN_A_ROW, Restarts
from gymlab.envs.worker import Failed
from gymlab.errors import EnvironmentFailure, NonFiniteError

SEEDS = SeedTree(7)
EVERY_WAY = [("sync", "raise"), ("async", "raise"), ("async", "exit"), ("async", "kill"), ("async", "sleep")]
CAUSES = {
    "raise": "ZeroDivisionError: the gears are stuck",
    "exit": "ended with exit code 3",
    "kill": "exit code -9 (SIGKILL, often for lack of memory)",
    "sleep": "did not answer within 0.5 s",
}


def seed_of(index: int, episode: int) -> int:
    return SEEDS.child("train", index, episode).integer()


@pytest.fixture
def failing(config, monkeypatch):
    """Makes vectors of the failing environment; episodes of 3, 1, 4, 2, 5, 3 ... steps that end by termination."""
    gym.register("Failing-v0", entry_point=Failing)
    opened = []
    monkeypatch.setattr(Failing, "constructions", 0)

    def make(backend, how="raise", count=3, bad_seeds=(), bad_constructions=(), how_in_reset=None, **fields):
        monkeypatch.setattr(Failing, "how", how)
        monkeypatch.setattr(Failing, "how_in_reset", how_in_reset)
        monkeypatch.setattr(Failing, "bad_seeds", frozenset(bad_seeds))
        monkeypatch.setattr(Failing, "bad_constructions", bad_constructions)
        timeout = 0.5 if how == "sleep" else 20.0
        # One environment a process, unless a test says otherwise.
        fields = {
            "env_step_timeout": timeout,
            "env_kwargs": {"kinds": (0,)},
            "env_workers": count,
            "double_buffer": False,
            **fields,
        }
        opened.append(make_vector(config("Failing-v0", **fields), count, SEEDS, backend=backend))
        # As if an episode had been finished before: what fails in the first one ends the run.
        opened[-1].restarts.finished = True
        return opened[-1]

    yield make
    for vector in opened:
        vector.close()
    gym.registry.pop("Failing-v0")


def actions_with(failures: dict[int, int], steps: int, count: int = 3) -> np.ndarray:
    """Zeros, with action 2 for an environment at a step: {step: environment}."""
    actions = np.zeros((steps, count), dtype=int)
    for step, index in failures.items():
        actions[step, index] = 2
    return actions


def played(vector, actions):
    """Rows as (observation, reward, terminated, truncated, final observation, seed) by environment, and the episodes."""
    rows = [[] for _ in range(vector.num_envs)]
    episodes = []
    for row in actions:
        step = vector.step(row)
        for index in range(vector.num_envs):
            final = float(step.final_observation[index, 0]) if step.ended[index] else None
            values = (step.observation[index, 0], step.reward[index], step.terminated[index], step.truncated[index])
            rows[index].append((*(value.item() for value in values), final, step.info["seed"][index]))
        episodes += step.episodes
    return rows, episodes


@pytest.mark.parametrize(("backend", "how"), EVERY_WAY)
def test_a_failure_in_a_step_cuts_the_episode_off_and_disturbs_nobody(failing, backend, how, caplog):
    vector, calm = failing(backend, how), failing("sync", how)
    vector.reset()
    calm.reset()
    rows, episodes = played(vector, actions_with({6: 1}, 12))
    expected, calm_episodes = played(calm, actions_with({}, 12))
    for index in (0, 2):
        assert rows[index] == expected[index]
        assert [e for e in episodes if e.env_index == index] == [e for e in calm_episodes if e.env_index == index]
    assert rows[1][:6] == expected[1][:6]
    # Episode 2 has had steps 4 and 5 and seen observation 202; its successor counts its own episodes from 0.
    assert rows[1][6] == (0.0, 0.0, False, True, 202.0, None)
    assert rows[1][7] == (1.0, 1.0, False, False, None, seed_of(1, 3))
    mine = [tuple(episode[:8]) for episode in episodes if episode.env_index == 1]
    assert mine[:2] == [(1, 0, 6.0, 6.0, 3, True, None, False), (1, 1, 1.0, 1.0, 1, True, None, False)]
    assert mine[2] == (1, 2, 3.0, 3.0, 2, False, None, True)
    assert mine[3][:2] == (1, 3)
    assert vector.restarts.count == 1
    assert vector.episode_counts[1] == len(mine)
    assert caplog.text.count(CAUSES[how]) == 1
    assert "Failing-v0: train environment 1 failed and is restarted (restart 1, at most 100)" in caplog.text


def name_of(index):
    return f"Failing-v0: train environment {index}"


def test_an_environment_that_raises_is_replaced_inside_its_process(failing):
    vector, calm = failing("async", env_workers=1), failing("sync")
    vector.reset()
    calm.reset()
    (process,) = (worker.process.pid for worker in vector._workers)
    rows, _ = played(vector, actions_with({6: 1}, 12))
    expected, _ = played(calm, actions_with({}, 12))
    assert (rows[0], rows[2]) == (expected[0], expected[2])
    assert rows[1][6] == (0.0, 0.0, False, True, 202.0, None)
    assert rows[1][7] == (1.0, 1.0, False, False, None, seed_of(1, 3))
    assert [worker.process.pid for worker in vector._workers] == [process]


@pytest.mark.parametrize("how", ["exit", "kill", "sleep"])
def test_a_lost_process_costs_the_episodes_of_its_block_and_one_restart(failing, how, caplog):
    vector, calm = failing("async", how, count=4, env_workers=2), failing("sync", count=4)
    vector.reset()
    calm.reset()
    rows, episodes = played(vector, actions_with({6: 1}, 12, count=4))
    expected, calm_episodes = played(calm, actions_with({}, 12, count=4))
    assert rows[2:] == expected[2:]
    assert [e for e in episodes if e.env_index > 1] == [e for e in calm_episodes if e.env_index > 1]
    for index in (0, 1):
        assert rows[index][:6] == expected[index][:6]
        # Whether or not environment 0 had taken its step before: the sums are those of the rows that were told.
        assert rows[index][6] == (0.0, 0.0, False, True, 202.0, None)
        assert rows[index][7] == (1.0, 1.0, False, False, None, seed_of(index, 3))
        mine = [tuple(episode) for episode in episodes if episode.env_index == index]
        assert mine[2] == (index, 2, 3.0, 3.0, 2, False, None, True, None, None)
        assert vector.episode_counts[index] == len(mine)
    assert vector.restarts.count == 1
    assert "restarted 1 times, and 1 episodes of others in the same processes were cut off" in vector.restarts.summary()
    assert f"{name_of(1)} failed and is restarted" in caplog.text
    assert CAUSES[how] in caplog.text
    assert "Environments 0 to 1 shared its process and lose their episodes." in caplog.text


def test_only_the_culprit_is_counted_in_a_row(failing):
    vector = failing("async", "kill", env_workers=1)
    vector.reset()
    vector.step(np.array([0, 0, 2]))
    vector.step(np.array([0, 2, 0]))
    assert dict(vector.restarts._in_a_row) == {name_of(1): 1, name_of(2): 1}


def test_a_process_lost_in_a_reset_has_told_its_rows_before(failing):
    lengths = {"env_kwargs": {"kinds": (0,), "lengths": (3,)}}
    bad = {seed_of(1, 1)}
    vector = failing("async", count=2, bad_seeds=bad, how_in_reset="kill", env_workers=1, **lengths)
    vector.reset()
    # Environment 0 raises in the first step, so that it is in the middle of an episode when the other begins its next.
    rows, episodes = played(vector, actions_with({0: 0}, 4, count=2))
    assert rows[1][2] == (0.0, 3.0, True, False, 3.0, seed_of(1, 0))
    assert rows[0][2] == (0.0, 2.0, False, True, 2.0, seed_of(0, 1))
    assert [row[5] for row in (rows[0][3], rows[1][3])] == [seed_of(0, 2), seed_of(1, 2)]
    assert [tuple(episode) for episode in episodes] == [
        (0, 0, 0.0, 0.0, 0, False, None, True, None, None),
        (0, 1, 3.0, 3.0, 2, False, None, True, None, None),
        (1, 0, 6.0, 6.0, 3, True, None, False, None, 3),
    ]
    assert vector.restarts.count == 2


class Slow(Failing):
    """Takes its time."""

    def step(self, action):
        time.sleep(0.4)
        return super().step(action)


def test_the_time_limit_is_that_of_one_environment(config):
    gym.register("Slow-v0", entry_point=Slow)
    with make_vector(
        config("Slow-v0", env_workers=1, double_buffer=False, env_step_timeout=1.0), 3, SEEDS, backend="async"
    ) as vector:
        vector.reset()
        assert not vector.step(np.zeros(3, dtype=int)).truncated.any()
        assert vector.restarts.count == 0
    gym.registry.pop("Slow-v0")


def test_a_silent_environment_does_not_hold_up_a_stop(failing, monkeypatch, caplog):
    monkeypatch.setattr(workers, "STOP_PATIENCE", 0.5)
    vector = failing("async", "sleep", count=4, env_workers=2, env_step_timeout=50.0)
    vector.reset()
    asked = time.monotonic() + 0.7
    monkeypatch.setattr(vector.restarts, "stop_requested", lambda: time.monotonic() > asked)
    step = vector.step(np.array([0, 2, 0, 0]))
    assert time.monotonic() - asked < 10
    assert step.truncated.tolist() == [True, True, False, False]
    assert "The environment did not answer within 0.5 s, and the run was asked to stop." in caplog.text
    # All of them are there to be saved.
    assert set(vector.get_state()["environments"]) == {"0", "1", "2", "3"}


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_failure_in_one_half_leaves_the_other_alone(failing, how):
    vector, calm = failing("async", how, count=4, env_workers=2), failing("sync", count=4)
    vector.reset()
    calm.reset()
    expected, _ = played(calm, actions_with({}, 8, count=4))
    seen = []
    for number in range(8):
        vector.step_async(np.array([0, 2 if number == 6 else 0]), 0)
        if number:
            seen.append(vector.step_wait(1))
        vector.step_async(np.zeros(2, dtype=int), 1)
        step = vector.step_wait(0)
        assert step.truncated.tolist() == [number == 6 and how == "kill", number == 6]
    seen.append(vector.step_wait(1))
    assert [step.info["seed"][0] for step in seen] == [row[5] for row in expected[2]]
    assert vector.restarts.count == 1


def test_a_worker_killed_between_steps_is_replaced_in_the_next(failing):
    vector = failing("async")
    vector.reset()
    vector.step(np.zeros(3, dtype=int))
    os.kill(vector._workers[2].process.pid, signal.SIGKILL)
    step = vector.step(np.zeros(3, dtype=int))
    assert step.truncated.tolist() == [False, False, True]
    assert not step.terminated.any()
    assert step.final_observation[2, 0] == 1.0
    assert [tuple(episode[:8]) for episode in step.episodes] == [(2, 0, 1.0, 1.0, 1, False, None, True)]
    assert not vector.step(np.zeros(3, dtype=int)).truncated.any()


def test_all_workers_may_die_at_once(failing):
    vector = failing("async", "kill")
    vector.reset()
    step = vector.step(np.full(3, 2))
    assert step.truncated.all()
    assert [episode.broken for episode in step.episodes] == [True] * 3
    np.testing.assert_array_equal(vector.step(np.zeros(3, dtype=int)).observation[:, 0], [1.0, 1.0, 1.0])


@pytest.mark.parametrize(("backend", "how"), EVERY_WAY)
def test_a_failure_in_the_reset_after_an_episode_leaves_that_episode_whole(failing, backend, how):
    vector = failing(backend, how, bad_seeds={seed_of(1, 1), seed_of(1, 2)})
    vector.reset()
    rows, episodes = played(vector, actions_with({}, 4))
    assert rows[1][2] == (0.0, 3.0, True, False, 3.0, seed_of(1, 0))
    # Neither of the two seeds that failed is tried again.
    assert rows[1][3] == (1.0, 1.0, False, False, None, seed_of(1, 3))
    assert [tuple(episode[:8]) for episode in episodes if episode.env_index == 1] == [
        (1, 0, 6.0, 6.0, 3, True, None, False)
    ]
    assert vector.restarts.count == 2
    assert vector.episode_counts.tolist() == [2, 1, 2]


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_failure_in_the_first_reset_and_in_one_with_other_seeds(failing, backend):
    other = SEEDS.child("evaluation")
    bad = {seed_of(0, 0), other.child("train", 2, 0).integer()}
    vector = failing(backend, bad_seeds=bad)
    vector.reset()
    assert vector.step(np.zeros(3, dtype=int)).info["seed"][0] == seed_of(0, 1)
    vector.reset(other)
    assert vector.step(np.zeros(3, dtype=int)).info["seed"] == [
        other.child("train", index, episode).integer() for index, episode in ((0, 0), (1, 0), (2, 1))
    ]


def break_once(vector, index):
    """Let a CartPole fail in its next step."""
    if vector.backend == "async":
        os.kill(vector._workers[index].process.pid, signal.SIGKILL)
    else:
        vector.envs[index]._inner_step = lambda action: 1 / 0


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_exact_resume_after_a_restart(config, backend):
    plan = np.random.default_rng(0).integers(0, 2, (100, 2))
    with make_vector(config(), 2, SEEDS, backend=backend) as whole:
        whole.reset()
        whole.restarts.finished = True
        for number, actions in enumerate(plan[:50]):
            if number in (15, 45):
                break_once(whole, 1)
            whole.step(actions)
        assert whole.restarts.count == 2
        state = whole.get_state()
        with make_vector(config(), 2, SEEDS, backend="sync") as resumed:
            resumed.set_state(state)
            np.testing.assert_array_equal(resumed.observation, whole.observation)
            np.testing.assert_array_equal(resumed.episode_counts, whole.episode_counts)
            for actions in plan[50:]:
                expected, seen = whole.step(actions), resumed.step(actions)
                np.testing.assert_array_equal(seen.observation, expected.observation)
                assert seen.episodes == expected.episodes


def test_a_worker_found_dead_when_saving_costs_its_episode_only(failing, caplog):
    vector = failing("async")
    vector.reset()
    vector.step(np.zeros(3, dtype=int))
    os.kill(vector._workers[1].process.pid, signal.SIGKILL)
    state = vector.get_state()
    step = vector.step(np.zeros(3, dtype=int))
    assert step.truncated.tolist() == [False, True, False]
    resumed = failing("async")
    resumed.set_state(state)
    assert "Environment 1 had failed in episode 0 when it was saved." in caplog.text
    assert resumed.step(np.zeros(3, dtype=int)).info["seed"] == [seed_of(0, 0), seed_of(1, 1), seed_of(2, 0)]


@pytest.mark.parametrize(("backend", "how"), EVERY_WAY)
def test_a_failure_in_a_replay_costs_its_episode_only(failing, backend, how):
    vector = failing("sync")
    vector.reset()
    vector.step(np.zeros(3, dtype=int))
    resumed = failing(backend, how, bad_seeds={seed_of(1, 0)})
    resumed.set_state(vector.get_state())
    assert resumed.step(np.zeros(3, dtype=int)).info["seed"] == [seed_of(0, 0), seed_of(1, 1), seed_of(2, 0)]


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_crash_loop_ends_the_run_with_the_traceback(failing, backend):
    vector = failing(backend)
    vector.reset()
    for _ in range(MOST_IN_A_ROW):
        vector.step(np.array([0, 2, 0]))
    with pytest.raises(
        EnvironmentFailure, match=r"(?s)gears are stuck.*environment 1 failed.*5 times in a row \(5 restarts"
    ):
        vector.step(np.array([0, 2, 0]))


def test_a_whole_episode_between_failures_is_no_crash_loop(failing):
    vector = failing("sync", env_kwargs={"kinds": (0,), "lengths": (1,)})
    vector.reset()
    for _ in range(MOST_IN_A_ROW + 3):
        vector.step(np.array([0, 2, 0]))
        vector.step(np.array([0, 0, 0]))
    assert vector.restarts.count == MOST_IN_A_ROW + 3


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_the_number_of_restarts_is_bounded(failing, backend):
    vector = failing(backend, env_restarts=2)
    vector.reset()
    vector.step(np.array([2, 0, 2]))
    with pytest.raises(EnvironmentFailure, match=r"restarted 2 times and env_restarts is 2\. .*env_restarts=N"):
        vector.step(np.array([0, 2, 0]))
    none = failing(backend, env_restarts=0)
    none.reset()
    with pytest.raises(EnvironmentFailure, match=r"(?s)gears are stuck.*env_restarts is 0"):
        none.step(np.array([2, 0, 0]))


def test_what_repeats_itself_is_told_in_full_once(caplog):
    restarts = Restarts()
    restarts.whole_episode("CartPole-v1: train environment 1")
    for _ in range(3):
        restarts.allow("CartPole-v1: train environment 0", "a.py:3, in step: Error: no\n    a line")
    assert caplog.text.count("a line") == 1
    assert caplog.text.count("Error: no") == 3


@pytest.mark.parametrize("fails", [True, False])
def test_a_failure_while_timed_is_told_only_where_training_gets_past_it(config, monkeypatch, caplog, fails):
    monkeypatch.setattr(build, "call_apart", lambda call, timeout: Failed("my_env.py:3: ZeroDivisionError: stuck"))
    monkeypatch.setitem(gym.registry, "Timed-v0", gym.envs.registration.EnvSpec("Timed-v0", Failing))
    with make_vector(config("Timed-v0", vectorization_mode="async"), 2, SEEDS) as vector:
        vector.reset()
        if fails:
            with pytest.raises(EnvironmentFailure, match="gears are stuck"):
                vector.step(np.full(2, 2))
        else:
            played(vector, np.zeros((6, 2), dtype=int))
    assert caplog.text.count("Timed-v0 failed while it was timed") == (0 if fails else 1)


@pytest.mark.parametrize(("backend", "number"), [("sync", 2), ("async", 1), ("async", 2)])
def test_an_environment_that_cannot_be_made_fails_at_once(failing, backend, number):
    # In a worker the counter stands at what the example in the parent left.
    with pytest.raises(EnvironmentFailure, match=r"(?s)no licence.*environment . could not be made"):
        failing(backend, bad_constructions=(number,))


@pytest.mark.parametrize(("backend", "number"), [("sync", 4), ("async", 3)])
def test_later_a_failed_construction_is_one_more_failure(failing, backend, number):
    # In a worker the successor is the third: after the example in the parent and its predecessor.
    vector = failing(backend, bad_constructions=(number,))
    vector.reset()
    vector.step(np.array([0, 2, 0]))
    assert vector.restarts.count == 2


def test_a_process_whose_environments_cannot_be_made_any_more_ends_the_run(failing, monkeypatch):
    vector = failing("async", "kill")
    vector.reset()
    # Each new process is forked from this one, whose counter stands at 1, and tries again by itself.
    monkeypatch.setattr(Failing, "bad_constructions", range(2, 20))
    with pytest.raises(EnvironmentFailure, match=r"(?s)no licence.*5 times in a row"):
        vector.step(np.array([0, 2, 0]))


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_wrong_action_is_not_the_environments_fault(config, backend):
    with make_vector(config(), 2, SEEDS, backend=backend) as vector:
        vector.reset()
        with pytest.raises(EnvironmentFailure, match=r"was given the action 5, which is not in Discrete\(2\)"):
            vector.step(np.array([0, 5]))
        assert vector.restarts.count == 0


class Refusing(Failing):
    """Raises an error of ours."""

    def step(self, action):
        raise NonFiniteError("the pressure is NaN")


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_errors_of_ours_end_the_run(config, backend):
    gym.register("Refusing-v0", entry_point=Refusing)
    with make_vector(config("Refusing-v0"), 2, SEEDS, backend=backend, pace=UNKNOWN) as vector:
        vector.reset()
        with pytest.raises(NonFiniteError, match="the pressure is NaN"):
            vector.step(np.zeros(2, dtype=int))
    gym.registry.pop("Refusing-v0")


class Nan(Failing):
    """Returns a reward that is none."""

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, np.nan, terminated, truncated, info


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_nan_ends_the_run(config, backend):
    gym.register("Nan-v0", entry_point=Nan)
    with make_vector(config("Nan-v0"), 2, SEEDS, backend=backend) as vector:
        vector.reset()
        with pytest.raises(NonFiniteError, match="environment 0, episode 0, step 1"):
            vector.step(np.zeros(2, dtype=int))
    gym.registry.pop("Nan-v0")
