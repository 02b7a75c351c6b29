"""One environment in play."""

import numpy as np
import pytest

from gymlab.api import resolve
from gymlab.engine.playing import Decision, Game, RandomPolicy, likeliest


class Always:
    """Takes one action for ever."""

    def __init__(self, action):
        self.action = action
        self.begun = 0

    def begin(self):
        self.begun += 1

    def decide(self, observation, mask):
        return Decision(self.action, value=float(observation.sum()))


@pytest.fixture
def lake():
    config = resolve("FrozenLake-v1:q_learning", env_kwargs=["is_slippery=false"]).config
    with Game(config, seed=0, render=False) as game:
        yield game


def test_a_policy_decides_before_the_step(lake):
    lake.policy = Always(1)
    lake.begin()
    assert lake.decision.action == 1
    assert lake.text_of(1) == "down"
    places = [lake.observation]
    while lake.ending is None:
        lake.step()
        places.append(lake.observation)
    # Down from the start: 0, 4, 8, then the hole at 12.
    assert places == [0, 4, 8, 12]
    assert lake.decision is None
    assert (lake.finished[0].env_return, lake.finished[0].length, lake.finished[0].ending) == (0.0, 3, "terminated")


def test_an_episode_that_is_left_counts_as_left(lake):
    lake.begin()
    lake.begin()
    assert lake.finished == []
    lake.step(2)
    lake.begin()
    assert [(episode.number, episode.length, episode.ending) for episode in lake.finished] == [(2, 1, "left")]
    with pytest.raises(ValueError, match="nobody"):
        lake.step()


def test_whole_episodes(lake):
    lake.policy = policy = Always(1)
    assert sum(1 for _ in lake.play(2)) == 8
    assert policy.begun == 2
    assert [episode.length for episode in lake.finished] == [3, 3]


def test_chance_repeats_from_its_seed_and_heeds_masks():
    import gymnasium as gym

    def drawn(seed):
        policy = RandomPolicy(gym.spaces.Discrete(5), seed=seed)
        return [policy.decide(np.zeros(1), None).action for _ in range(20)]

    assert drawn(1) == drawn(1) != drawn(2)
    policy = RandomPolicy(gym.spaces.Discrete(3), seed=0)
    mask = np.array([False, True, False])
    assert {int(policy.decide(np.zeros(1), mask).action) for _ in range(10)} == {1}


def test_the_likeliest_in_their_own_order():
    assert likeliest(np.array([0.1, 0.5, 0.0, 0.4]), 2) == [(1, 0.5), (3, 0.4)]


def test_a_nested_observation_may_come_flat(tmp_path):
    """Blackjack's tuple becomes one vector in our environments, and `Agent.act` takes both."""
    import gymlab

    small = {"max_env_steps": 64, "n_envs": 2, "n_steps": 32, "batch_size": 64, "eval_freq_epochs": None}
    run = gymlab.train("Blackjack-v1", algo="ppo", runs_dir=tmp_path, eval_episodes=1, video=False, quiet=True, **small)
    with Game(run.agent.config, seed=0, render=False) as game:
        game.begin()
        flat, nested = game.observation, game.own.observation
    assert isinstance(nested, tuple)
    assert flat.shape == run.agent.workflow.context.observation_space.shape
    assert run.agent.act(flat) == run.agent.act(nested)
