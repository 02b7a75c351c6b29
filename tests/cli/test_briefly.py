"""A training of a hundred steps takes a hundred steps, whatever the experiment's sizes."""

import pytest

import gymlab
from gymlab.cli.briefly import brief_settings, step_briefly, train_briefly


def settings(experiment, timesteps):
    config = gymlab.resolve(experiment).config
    return gymlab.resolve(experiment, **brief_settings(config, timesteps)).config


def test_sizes_are_made_to_fit():
    config = settings("CartPole-v1:ppo", 100)
    assert (config.n_envs, config.n_steps, config.batch_size, config.n_epochs) == (2, 25, 25, 2)
    assert (config.max_env_steps, config.eval_freq_epochs, config.eval_episodes) == (100, 1, 1)
    assert (config.video, config.early_stop_on_eval_threshold, config.eval_max_episode_steps) == (False, False, 100)
    assert config.gae_lambda == 0.8


@pytest.mark.parametrize("timesteps", [1, 2, 7, 30, 1000])
def test_any_number_of_steps_loads(timesteps):
    config = settings("CartPole-v1:ppo", timesteps)
    assert config.n_envs * config.n_steps % config.batch_size == 0


@pytest.mark.parametrize(
    "experiment", ["Taxi-v4:q_learning", "CartPole-v1:reinforce", "CartPole-v1:world_models", "experiment=cartpole_ppo"]
)
def test_a_training_takes_that_many_steps(experiment, tmp_path):
    assert train_briefly(experiment, 100, tmp_path) == 100


def test_random_steps_go_through_the_vector_environment():
    assert step_briefly("FrozenLake-v1:ppo", 31) == 32
