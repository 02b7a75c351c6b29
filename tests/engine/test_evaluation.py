"""Evaluation: a fixed quota for each sub-environment, whatever the lengths of episodes."""

import gymnasium as gym
import numpy as np
import pytest

import gymlab
from gymlab.api import resolve
from gymlab.engine import evaluation
from gymlab.engine.evaluation import Limits, changed_task, evaluate, shortened_episodes
from gymlab.envs.step import Episode, Step


class LengthsEnvironment:
    """Sub-environment i has episodes of i + 1 steps with return i + 1."""

    action_mask = None

    def __init__(self, num_envs):
        self.num_envs = num_envs

    def reset(self, seeds=None):
        self.lengths = np.zeros(self.num_envs, dtype=int)
        self.episodes = np.zeros(self.num_envs, dtype=int)
        return np.zeros((self.num_envs, 1), np.float32)

    def step(self, actions):
        self.lengths += 1
        ended = self.lengths == np.arange(self.num_envs) + 1
        finished = [
            Episode(int(i), int(self.episodes[i]), float(i + 1), float(i + 1), int(i + 1), True)
            for i in np.flatnonzero(ended)
        ]
        self.episodes[ended] += 1
        self.lengths[ended] = 0
        zeros = np.zeros((self.num_envs, 1), np.float32)
        return Step(
            zeros, np.ones(self.num_envs, np.float32), ended, np.zeros(self.num_envs, bool), zeros, episodes=finished
        )


class Still:
    """Does nothing, and counts the calls."""

    calls = 0

    def initial_state(self, num_envs):
        return np.zeros(num_envs)

    def reset_state(self, state, is_first):
        return np.where(is_first, 0, state)

    def act(self, observation, state, *, deterministic, action_mask):
        self.calls += 1
        return np.zeros(len(observation), int), state + 1, {}


class TellingEnvironment(LengthsEnvironment):
    """Its first sub-environment finds wood in every episode, the others in none; nobody finds gold."""

    def step(self, actions):
        step = super().step(actions)
        step.episodes = [
            episode._replace(told={"achievement/wood": float(episode.env_index == 0), "achievement/gold": 0.0})
            for episode in step.episodes
        ]
        return step


def test_what_the_environment_told_is_over_the_counted_episodes():
    result = evaluate(Still(), TellingEnvironment(4), 4, deterministic=True)
    # One of four episodes: rates of 25% and 0%, and the score sqrt(26 * 1) - 1.
    assert result.told == {
        "achievement/wood/mean": 0.25,
        "achievement/gold/mean": 0.0,
        "achievement_score": pytest.approx(26**0.5 - 1),
    }
    assert result.summary()["told"] == result.told


def test_short_episodes_are_not_favoured():
    result = evaluate(Still(), LengthsEnvironment(4), 10, deterministic=True)
    assert sorted(result.returns) == [1, 1, 1, 2, 2, 2, 3, 3, 4, 4]
    assert result.complete
    assert result.summary()["mean"] == 2.3
    assert (result.summary()["min"], result.summary()["max"], result.summary()["n"]) == (1, 4, 10)


def test_a_time_limit_keeps_what_was_finished():
    result = evaluate(Still(), LengthsEnvironment(2), 1000, deterministic=True, limits=Limits(0.0))
    assert result.n == 1
    assert not result.complete


class BrokenEnvironment(LengthsEnvironment):
    """Every other episode of sub-environment 1 breaks off with a return of 100."""

    def step(self, actions):
        step = super().step(actions)
        step.episodes = [
            episode._replace(env_return=100.0, broken=True)
            if episode.env_index == 1 and episode.episode_index % 2 == 0
            else episode
            for episode in step.episodes
        ]
        return step


def test_broken_episodes_are_left_out_and_others_played_instead():
    result = evaluate(Still(), BrokenEnvironment(3), 6, deterministic=True)
    assert sorted(result.returns) == [1, 1, 2, 2, 3, 3]
    assert sorted(result.lengths) == [1, 1, 2, 2, 3, 3]
    assert result.complete


class EndlessEnvironment(LengthsEnvironment):
    """Sub-environment `endless` never ends an episode."""

    def __init__(self, num_envs, endless):
        super().__init__(num_envs)
        self.endless = endless

    def step(self, actions):
        self.lengths[self.endless] = self.num_envs
        return super().step(actions)


def test_an_episode_that_never_ends_is_given_up_and_unfinished():
    workflow = Still()
    result = evaluate(workflow, EndlessEnvironment(4, endless=1), 10, deterministic=True, limits=Limits(steps=30))
    assert sorted(result.returns) == [1, 1, 1, 3, 3, 4, 4]
    assert (result.n, result.asked, result.complete) == (7, 10, False)
    assert result.cut == "limit of 30 steps an episode"
    assert workflow.calls == result.steps == 30
    summary = result.summary()
    assert (summary["asked"], summary["complete"], summary["cut"]) == (10, False, result.cut)


def test_the_limit_of_steps_is_for_each_episode():
    result = evaluate(Still(), LengthsEnvironment(2), 400, deterministic=True, limits=Limits(steps=2))
    assert result.complete
    assert result.cut is None
    assert evaluate(Still(), LengthsEnvironment(2), 400, deterministic=True, limits=Limits(steps=1)).n == 200


def test_progress_is_told_while_it_runs(monkeypatch):
    monkeypatch.setattr(evaluation, "PROGRESS_SECONDS", -1.0)
    told = []
    evaluate(Still(), LengthsEnvironment(1), 3, deterministic=True, progress=lambda *now: told.append(now))
    assert told == [(1, 1), (2, 2), (3, 3)]


def test_nothing_ended():
    for limits, cut in ((Limits(steps=20), "limit of 20 steps an episode"), (Limits(0.0), "time limit of 0 s")):
        found = evaluate(Still(), EndlessEnvironment(1, endless=0), 5, deterministic=True, limits=limits)
        assert (found.n, found.complete, found.cut) == (0, False, cut)
        assert [found.summary()[name] for name in ("mean", "ci95", "min", "max", "ep_len")] == [None] * 5


def config(env_id="MountainCar-v0", **settings):
    return resolve(env_id, algo="ppo", **settings).config


def test_limits_are_the_config_s_unless_given():
    assert Limits.of(config()) == Limits(600.0, 100_000)
    assert Limits.of(config(eval_step_limit=50, eval_time_limit=3.0)) == Limits(3.0, 50)
    assert Limits.of(config(eval_step_limit=50), steps=9, seconds=2.0) == Limits(2.0, 9)
    # A task that may take longer than the default is not cut before its own end.
    assert Limits.of(config(max_episode_steps=200_000)).steps == 200_000


def test_which_episodes_are_shortened():
    assert shortened_episodes(config()) is None
    assert shortened_episodes(config(eval_max_episode_steps=50)) == [50, 200]
    assert shortened_episodes(config(eval_max_episode_steps=200)) is None
    assert shortened_episodes(config(eval_max_episode_steps=50), training=True) is None
    # Training on a shorter task shortens what is evaluated, unless it has a threshold of its own.
    assert shortened_episodes(config(max_episode_steps=50), training=True) == [50, 200]
    assert shortened_episodes(config(max_episode_steps=50, reward_threshold=-40.0)) is None
    # CliffWalking is registered without a limit; its file sets one.
    assert shortened_episodes(resolve("CliffWalking-v1:ppo").config) is None
    unlimited = config("CliffWalking-v1", max_episode_steps=None, eval_max_episode_steps=50)
    assert shortened_episodes(unlimited) == [50, None]
    assert shortened_episodes(unlimited, longest=20) is None


@pytest.mark.parametrize(
    ("experiment", "fields", "names"),
    [
        ("CartPole-v1:ppo", {"max_episode_steps": 1000}, ["max_episode_steps"]),
        ("CartPole-v1:ppo", {"max_episode_steps": 500}, []),
        ("CartPole-v1:ppo", {"env_kwargs": {"sutton_barto_reward": True}}, ["env_kwargs.sutton_barto_reward"]),
        ("CartPole-v1:ppo", {"env_kwargs": {"sutton_barto_reward": False}}, []),
        ("CartPole-v1:ppo", {"env_kwargs": {"sutton_barto_reward": True}, "reward_threshold": 0.0}, []),
        ("CartPole-v1:ppo", {"env_kwargs": {"sutton_barto_reward": True}, "spec.returns.threshold_solved": -1.0}, []),
        # Its file sets a limit of its own.
        ("CliffWalking-v1:ppo", {}, []),
        ("CliffWalking-v1:ppo", {"max_episode_steps": 300}, ["max_episode_steps"]),
        ("CliffWalking-v1:ppo", {"max_episode_steps": None}, ["max_episode_steps"]),
        # Its file sets arguments.
        ("LunarLanderContinuous-v3:ppo", {}, []),
        ("LunarLanderContinuous-v3:ppo", {"env_kwargs": {"gravity": -5.0}}, ["env_kwargs.gravity"]),
        ("Bandit-v0:ppo", {"env_kwargs": {"n_arms": 3}}, ["env_kwargs.n_arms"]),
        # Another environment on top: the threshold is that of its own file.
        ("CartPole-v1:ppo", {"env_id": "Pendulum-v1"}, []),
        ("CartPole-v1:ppo", {"env_id": "Pendulum-v1", "env_kwargs": {"g": 5.0}}, ["env_kwargs.g"]),
    ],
)
def test_of_which_settings_the_threshold_is_not(experiment, fields, names):
    assert changed_task(resolve(experiment, **fields).config) == names


def test_a_registered_threshold_holds_for_what_is_registered(monkeypatch):
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    monkeypatch.setattr(gym, "registry", gym.envs.registration.registry)
    entry_point = "gymnasium.envs.classic_control.pendulum:PendulumEnv"
    gym.register("Swing-v0", entry_point=entry_point, reward_threshold=-150.0, max_episode_steps=200, kwargs={"g": 9.0})
    assert changed_task(config("Swing-v0")) == []
    assert changed_task(config("Swing-v0", env_kwargs={"g": 9.0, "screen_size": 64})) == []
    changed = config("Swing-v0", env_kwargs={"g": 5.0}, max_episode_steps=300)
    assert changed_task(changed) == ["env_kwargs.g", "max_episode_steps"]


def test_a_changed_task_has_no_verdict_and_stops_no_training(tmp_path):
    settings = {"n_envs": 4, "n_steps": 50, "batch_size": 100, "n_epochs": 1, "max_env_steps": 600, "video": False}
    settings |= {"eval_freq_epochs": 1, "eval_warmup_epochs": 0, "eval_episodes": 4, "quiet": True}
    # Every episode ends at its first step with a return above the threshold.
    changed = {"env_kwargs": {"goal_velocity": -1.0}, "spec.returns.threshold_solved": -1000.0}
    run = gymlab.train("MountainCar-v0", algo="ppo", runs_dir=tmp_path, **settings, **changed)
    assert run.result["solved"] is True
    changed = {"env_kwargs": {"goal_velocity": -1.0}, "early_stop_on_eval_threshold": True}
    run = gymlab.train("MountainCar-v0", algo="ppo", runs_dir=tmp_path, **settings, **changed)
    assert run.result["threshold"] == -110.0
    assert run.result["solved"] is None
    assert run.result["verdict"] == "not judged: the threshold holds for another value of env_kwargs.goal_velocity"
    assert run.result["note"] in (run.dir / "report.md").read_text()


def test_shortened_episodes_have_no_verdict_and_stop_no_training(tmp_path):
    settings = {"n_envs": 4, "n_steps": 50, "batch_size": 100, "n_epochs": 1, "max_env_steps": 600, "video": False}
    settings |= {"eval_freq_epochs": 1, "eval_warmup_epochs": 0, "eval_episodes": 4, "quiet": True}
    run = gymlab.train("MountainCar-v0", algo="ppo", eval_max_episode_steps=50, runs_dir=tmp_path, **settings)
    assert (run.result["mean"], run.result["threshold"], run.result["solved"]) == (-50.0, -110.0, None)
    assert run.result["verdict"] == "not judged: episodes were cut at 50 of the task's 200 steps"
    assert run.record["counters"]["env_steps"] == 600
    assert "solved" not in (run.dir / "report.md").read_text()
