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


@pytest.mark.parametrize(
    ("experiment", "package", "steps"),
    [("CarRacing-v3:world_models", "Box2D", 100), ("VizDoom-TakeCover-v0:world_models_dream", "vizdoom", 50)],
)
def test_a_pipeline_goes_through_all_of_its_phases(experiment, package, steps, tmp_path):
    pytest.importorskip(package)
    assert train_briefly(experiment, 100, tmp_path) == steps
    (run,) = (folder for folder in tmp_path.iterdir() if folder.is_dir() and not folder.is_symlink())
    header = (run / "metrics.csv").read_text().splitlines()[0]
    for metric in ("loss/reconstruction", "loss/nll"):
        assert f"train/{metric}" in header
    # 50 steps on the track are fewer than an episode of each controller.
    assert ("train/controller/return/mean" in header) == (package == "vizdoom")
