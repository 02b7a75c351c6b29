"""A training goes on and learns although its environments crash and freeze, in training and in evaluation."""

import os
import sys
import time

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import gymlab
from gymlab.errors import EnvironmentFailure

SETTINGS = {
    "algo": "ppo",
    "vectorization_mode": "async",
    "n_envs": 8,
    "n_steps": 32,
    "batch_size": 256,
    "n_epochs": 20,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "policy_lr": "lin_0.001",
    "clip_range": "lin_0.2",
    "ent_coef": 0.0,
    "eval_freq_epochs": 40,
    "eval_episodes": 16,
    "max_env_steps": 60_000,
    "seed": 1,
    "quiet": True,
    "video": False,
}


class CrashingCartPole(CartPoleEnv):
    """Raises in one step of 2500, and ends its process in as many."""

    def step(self, action):
        chance = self.np_random.random()
        if chance < 4e-4:
            raise RuntimeError("the simulator lost its connection")
        if chance < 8e-4:
            os._exit(3)
        return super().step(action)


class FreezingCartPole(CartPoleEnv):
    """Falls silent in one step of 2500."""

    def step(self, action):
        if self.np_random.random() < 4e-4:
            time.sleep(3600)
        return super().step(action)


class LeavingCartPole(CartPoleEnv):
    """Ends the program in one step of 100, once it has finished an episode."""

    episodes = 0

    def reset(self, **kwargs):
        self.episodes += 1
        return super().reset(**kwargs)

    def step(self, action):
        if self.episodes > 1 and self.np_random.random() < 1e-2:
            sys.exit(0)
        return super().step(action)


class NarrowCartPole(CartPoleEnv):
    """Gives one number for four in one step of 100."""

    def step(self, action):
        observation, *rest = super().step(action)
        return observation[:1] if self.np_random.random() < 1e-2 else observation, *rest


class BrokenCartPole(CartPoleEnv):
    """Never comes to the end of an episode."""

    def step(self, action):
        if self.np_random.random() < 0.5:
            raise RuntimeError("the cart has no wheels")
        return super().step(action)


@pytest.fixture(autouse=True)
def environments():
    kinds = (CrashingCartPole, FreezingCartPole, LeavingCartPole, NarrowCartPole, BrokenCartPole)
    for kind in kinds:
        gym.register(f"{kind.__name__}-v0", entry_point=kind, max_episode_steps=500, reward_threshold=475)
    yield
    for kind in kinds:
        gym.registry.pop(f"{kind.__name__}-v0")


@pytest.mark.learns
@pytest.mark.parametrize("env_id", ["CrashingCartPole-v0", "FreezingCartPole-v0"])
def test_a_crashing_and_a_freezing_cartpole_are_learned(tmp_path, env_id):
    """Four environments share each of two workers; the crashing ones are stepped in halves by turns."""
    freezing = env_id == "FreezingCartPole-v0"
    fields = {"env_step_timeout": 1.0} if freezing else {"double_buffer": True}
    run = gymlab.train(env_id, runs_dir=tmp_path, **SETTINGS, env_workers=2, **fields)
    assert run.result["mean"] >= 475
    assert run.result["n"] == 16
    log = (run.dir / "run.log").read_text()
    restarts = log.count("failed and is restarted")
    assert restarts >= 3
    assert f"{env_id}: train environment" in log
    assert "shared its process and lose their episodes" in log
    # A worker that dies or hangs takes along the three others that it steps; an exception does not.
    lost = log.count("did not answer within 1 s" if freezing else "ended with exit code 3")
    report = (run.dir / "report.md").read_text()
    assert f"restarted {restarts} times, and {3 * lost} episodes of others in the same processes were cut off" in report
    if not freezing:
        assert "Traceback" not in log
        assert "The process of the environment ended with exit code 3" in log
    else:
        assert "The environment did not answer within 1 s" in log


SHORT = {
    **SETTINGS,
    "n_envs": 2,
    "batch_size": 64,
    "n_epochs": 1,
    "max_env_steps": 2048,
    "eval_freq_epochs": 0,
    "double_buffer": False,
}


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_environment_that_leaves_does_not_end_the_training(tmp_path, backend):
    settings = {**SHORT, "vectorization_mode": backend} | ({"env_workers": 1} if backend == "async" else {})
    run = gymlab.train("LeavingCartPole-v0", runs_dir=tmp_path, **settings)
    assert run.status == "finished"
    log = (run.dir / "run.log").read_text()
    assert "the environment tried to end the program (SystemExit: 0)" in log
    assert log.count("failed and is restarted") >= 1


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_observation_of_another_shape_ends_the_training_with_its_place(tmp_path, backend):
    settings = {**SHORT, "vectorization_mode": backend} | ({"env_workers": 1} if backend == "async" else {})
    with pytest.raises(EnvironmentFailure, match=r"NarrowCartPole-v0: train environment [01], episode \d+, step \d+: "):
        gymlab.train("NarrowCartPole-v0", runs_dir=tmp_path, **settings)
    (run_dir,) = (path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink())
    record = gymlab.engine.run.Run(run_dir).record
    assert record["status"] == "crashed"
    assert "an observation of shape (1,), its space (4,)" in record["reason"]
    assert "is restarted" not in (run_dir / "run.log").read_text()


def test_an_environment_that_never_works_ends_the_run_and_says_what_to_do(tmp_path):
    words = r"(?s)^\S*test_faulty_environments\.py:\d+, in step: RuntimeError: the cart has no wheels\n.*"
    with pytest.raises(
        EnvironmentFailure, match=words + r"not restarted: [^\n]*\n.*gymlab env check BrokenCartPole-v0"
    ):
        gymlab.train("BrokenCartPole-v0", runs_dir=tmp_path, **SETTINGS)
    (run_dir,) = (path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink())
    assert gymlab.engine.run.Run(run_dir).status == "crashed"
    assert "is restarted" not in (run_dir / "run.log").read_text()


def test_an_environment_that_fails_while_it_is_timed_gets_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(CrashingCartPole, "step", lambda self, action: os._exit(4))
    with pytest.raises(EnvironmentFailure, match=r"The process of the environment ended with exit code 4"):
        gymlab.train("CrashingCartPole-v0", runs_dir=tmp_path, **{**SETTINGS, "vectorization_mode": "auto"})
