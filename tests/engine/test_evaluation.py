"""Evaluation: a fixed quota for each sub-environment, whatever the lengths of episodes."""

import numpy as np
import pytest

from gymlab.engine.evaluation import evaluate
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
    result = evaluate(Still(), LengthsEnvironment(2), 1000, deterministic=True, time_limit=0.0)
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
