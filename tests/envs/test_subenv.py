import numpy as np
import pytest
from counting_env import Counting

from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_env
from gymlab.envs.subenv import EpisodeRecorder, SubEnv
from gymlab.errors import EnvironmentFailure


def make(limit: int | None = None, seeds: SeedTree | None = None, **options) -> SubEnv:
    recorder = EpisodeRecorder(Counting(shift=2, **options), limit)
    return SubEnv(recorder, recorder, seeds=seeds or SeedTree(0), purpose="train", env_index=3)


def test_recorder_sums_the_reward_and_starts_anew():
    env = EpisodeRecorder(Counting(shift=2), None)
    env.reset(seed=0)
    env.step(0)
    env.step(0)
    assert (env.env_return, env.steps) == (3.0, 2)
    env.reset(seed=0)
    assert (env.env_return, env.steps) == (0.0, 0)


def test_recorder_cuts_at_the_limit():
    env = EpisodeRecorder(Counting(shift=2), 2)
    env.reset(seed=0)
    assert env.step(0)[3] is False
    assert env.step(0)[2:4] == (False, True)


def test_an_episode_knows_its_place():
    env = make()
    env.reset()
    for _ in range(4):
        env.step(1)
    assert env.finish(terminated=True) == (3, 0, 10.0, 10.0, 4, True, None, False, None, 4)
    env.reset()
    assert env.episode_index == 1
    assert env.episodes_finished == 1


def test_state_is_the_episode_and_its_actions():
    env = make()
    env.reset()
    env.step(2)
    env.step(0)
    state = env.get_state()
    assert state["episode_index"] == 0
    assert state["actions"].tolist() == [2, 0]
    assert state["shaped_return"] == 3.0
    env.reset()
    assert env.get_state()["actions"].tolist() == []


def test_replay_reaches_the_same_place():
    env = make()
    env.reset()
    env.step(2)
    state = env.get_state()
    again = make()
    observation, info = again.replay(state)
    assert observation[0] == 1.0
    assert info == {"action": 2}
    assert again.length == 1


def test_a_replay_that_ends_too_early_is_told():
    env = make()
    env.reset()
    env.step(0)
    env.step(0)
    state = env.get_state()
    with pytest.raises(EnvironmentFailure, match="ended at step 1 of 2"):
        make(lengths=(1,)).replay(state)


def test_observations_of_a_dict_are_flattened_in_reset_and_step():
    import gymnasium as gym

    class Pair(Counting):
        def __init__(self):
            super().__init__(shift=2)
            self.observation_space = gym.spaces.Dict({"b": gym.spaces.Box(0, 9, (1,)), "a": gym.spaces.Discrete(2)})

        def _observation(self):
            return {"a": self.count % 2, "b": np.array([self.count])}

    recorder = EpisodeRecorder(Pair(), None)
    env = SubEnv(recorder, recorder, seeds=None, purpose="train", env_index=0)
    np.testing.assert_array_equal(env.reset(seed=0)[0], [1, 0, 0])
    np.testing.assert_array_equal(env.step(0)[0], [0, 1, 1])


def test_an_environment_may_tell_about_its_episodes(config, monkeypatch):
    def after_an_episode():
        env = make_env(config("Counting-v0"))
        env.reset()
        while not any(env.step(0)[2:4]):
            pass
        return env

    assert after_an_episode().finish(terminated=True).told is None
    monkeypatch.setattr(Counting, "episode_metrics", lambda self: {"kills": 2.0}, raising=False)
    env = after_an_episode()
    assert env.finish(terminated=True).told == {"kills": 2.0}
    assert env.abandon().told is None
