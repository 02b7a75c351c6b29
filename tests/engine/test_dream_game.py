"""A world model in play."""

import gymnasium as gym
import numpy as np
import pytest

import gymlab
from gymlab.engine.dream_game import DreamGame, beginning, dreaming_workflows
from gymlab.engine.playing import AgentPolicy, Game, RandomPolicy
from gymlab.errors import GymlabError


@pytest.fixture(scope="module")
def agent(dreaming_runs):
    return gymlab.load("dreamer", runs_dir=dreaming_runs)


def dreamt(agent, seed, **options):
    with DreamGame(agent, seed=seed, render=False, **options) as game:
        game.policy = RandomPolicy(game.env.action_space, seed=0)
        rows = []
        for _ in game.play(2):
            rows.append(np.array(game.observation))
        return np.stack(rows), game.finished


def test_a_dream_begins_where_the_episode_does_and_is_the_models_own(agent):
    with (
        Game(agent.config, seed=5, render=False) as real,
        DreamGame(agent, seed=5, render=True, likeliest=True) as game,
    ):
        real.begin()
        game.begin()
        np.testing.assert_array_equal(game.observation, real.observation)
        assert game.labels == real.labels
        assert game.fps == real.fps
        assert game.by_hand
        game.step(1)
        model = agent.workflow
        state = model.dream_start(beginning(np.asarray(real.observation, np.float32), game.env.action_space))
        _, expected = model.dream_step(state, np.array([1]))
        np.testing.assert_array_equal(game.observation, expected.observation[0])
        assert game.reward == game.env_return == pytest.approx(float(expected.reward[0]))
        # CartPole draws the dreamt state itself.
        assert game.frame().shape == (400, 600, 3)


def test_dreams_are_drawn_from_the_seed(agent):
    first, finished = dreamt(agent, 1)
    again, _ = dreamt(agent, 1)
    np.testing.assert_array_equal(first, again)
    other, _ = dreamt(agent, 2)
    assert first.shape != other.shape or not np.array_equal(first, other)
    assert [episode.number for episode in finished] == [1, 2]
    # The time limit of CartPole outside of training, which the config sets to 12.
    assert all(episode.length <= 12 for episode in finished)


def test_the_agent_plays_in_its_dream(agent):
    with DreamGame(agent, seed=0, render=False) as game:
        game.policy = AgentPolicy(agent, seed=0, deterministic=True)
        for _ in game.play(1):
            assert game.ending is not None or game.decision.probabilities.shape == (2,)
        (episode,) = game.finished
        assert episode.ending in ("terminated", "truncated")
        assert game.place == "in the world model"


def test_an_agent_without_a_world_model_is_refused_in_words(tmp_path):
    small = {"max_env_steps": 64, "n_envs": 2, "n_steps": 32, "batch_size": 64, "eval_freq_epochs": None}
    run = gymlab.train("CartPole-v1", algo="ppo", runs_dir=tmp_path, eval_episodes=1, video=False, quiet=True, **small)
    with pytest.raises(GymlabError, match=r"ppo has no world model.*dreamer, .*world_models"):
        DreamGame(run.agent, seed=0, render=False)
    assert "ppo" not in dreaming_workflows()


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(3, start=5),
        gym.spaces.MultiDiscrete([2, 3], start=[1, 4]),
        gym.spaces.Box(-1, 1, (2,), np.float32),
        gym.spaces.MultiBinary(4),
    ],
)
def test_a_beginning_names_an_action_of_the_space(space):
    recording = beginning(np.zeros(3), space)
    assert space.contains(recording.actions[0])
    assert recording.observations.shape == (1, 3)
    assert recording.is_first.tolist() == [True]
