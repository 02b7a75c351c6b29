"""Defaults of an experiment that says nothing about its end or its evaluation, and whole steps of its environments."""

import pytest
from config_helpers import ALGORITHMS, load_experiment

from gymlab.config.budgets import BY_ALGORITHM, DEFAULTS, default_budget

IDS = {
    "bandits": "Bandit-Own-v0",
    "toy text": "FrozenLake8x8-v1",
    "classic control": "MountainCarContinuous-v0",
    "Box2D": "LunarLander-v3",
    "MuJoCo": "Ant-v5",
    "the DeepMind Control Suite": "dmc/finger-spin",
    "Brax": "brax/hopper",
    "MiniGrid": "MiniGrid-Own-v0",
    "Crafter": "CrafterNoReward-v1",
    "Atari": "ALE/Tennis-v5",
    "VizDoom": "VizDoom-Own-v0",
    "Retro": "Retro/Own",
    "other environments": "GymV21Environment-v0",
}


def write_base(write, env_id):
    """An environment file without variants, so that `--algo` starts from nothing but the id."""
    write("environments/own.yaml", f"env_id: {env_id}\n")


@pytest.mark.parametrize("kind", DEFAULTS)
def test_every_kind_of_environment_has_a_budget_that_is_said_first(conf, write, kind):
    write_base(write, IDS[kind])
    loaded = load_experiment("own", "n_envs=1", algo="ppo", config_dir=conf)
    assert loaded.config.max_env_steps == DEFAULTS[kind].on_policy
    assert loaded.notices[0] == (
        f"No budget given: {DEFAULTS[kind].on_policy:,} env steps, the default of ppo on {kind}."
    )
    assert loaded.config.eval_episodes == DEFAULTS[kind].episodes


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_one_unless_it_ends_by_itself(conf, write, algorithm):
    write_base(write, "CartPole-v1")
    config = load_experiment("own", "n_envs=1", algo=algorithm, config_dir=conf).config
    if algorithm == "delta_iris":
        assert (config.max_env_steps, config.max_epochs) == (None, 1000)
        assert load_experiment("own", "max_epochs=null", algo=algorithm, config_dir=conf).config.max_env_steps == 50_000
    else:
        assert config.max_env_steps == default_budget(algorithm, "CartPole-v1")
    assert BY_ALGORITHM.keys() <= set(ALGORITHMS)


@pytest.mark.parametrize(
    "line",
    [
        "max_env_steps: null",
        "max_epochs: 3",
        "training: {phases: [{name: a, type: online, hooks: [collect], duration_steps: 50}]}",
        "training: {phases: [{name: a, type: eval_only}]}",
    ],
)
def test_what_ends_by_itself_or_is_told_to_go_on_is_given_none(load_variant, line):
    assert load_variant(line).max_env_steps is None


def test_a_curriculum_without_an_end_is_given_one(load_variant):
    assert load_variant("training: {phases: [{name: a, type: online, hooks: [collect]}]}").max_env_steps == 500_000


def test_a_number_of_generations_ends_world_models():
    assert load_experiment("CartPole-v0", "generations=5", "n_envs=1", algo="world_models").config.max_env_steps is None


@pytest.mark.parametrize(
    ("lines", "every"),
    [
        ("max_env_steps: 102400", 10),
        ("max_env_steps: 1024", 1),
        ("max_epochs: 200\nmax_env_steps: null", 20),
        ("eval_freq_epochs: null", None),
        ("eval_freq_epochs: 0", None),
        ("eval_freq_epochs: 7", 7),
        ("training: {phases: [{name: a, type: online, hooks: [collect, evaluate]}]}", None),
    ],
)
def test_evaluation_is_on_ten_times_unless_something_is_said(load_variant, lines, every):
    assert load_variant(f"n_steps: 128\nbatch_size: 64\n{lines}").eval_freq_epochs == every


def test_evaluation_by_default_is_said(conf, write):
    write(
        "environments/CartPole-v1.yaml", "env_id: CartPole-v1\nppo: {n_envs: 8, n_steps: 128, max_env_steps: 102400}\n"
    )
    (notice,) = load_experiment("CartPole-v1:ppo", config_dir=conf).notices
    assert notice.startswith("Evaluation: 100 episodes every 10 epochs, as nothing is said about it")
    (notice,) = load_experiment("CartPole-v1:ppo", "max_env_steps=2048", config_dir=conf).notices
    assert notice.startswith("Evaluation: 100 episodes each epoch, as nothing is said about it")
    assert not load_experiment("CartPole-v1:ppo", "eval_freq_epochs=0", config_dir=conf).notices


@pytest.mark.parametrize(
    ("lines", "caps"),
    [
        ("", (1_000, 2_000)),
        ("eval_max_episode_steps=300", (300, None)),
        ("eval_max_episode_steps=null", (None, None)),
        ("video_max_episode_steps=50", (1_000, 50)),
    ],
)
def test_episodes_of_retro_games_are_cut_outside_of_training(lines, caps):
    config = load_experiment("Retro/Own", *lines.split(), algo="ppo").config
    assert (config.eval_max_episode_steps, config.video_max_episode_steps) == caps
    other = load_experiment("ALE/Tennis-v5", algo="ppo").config
    assert (other.eval_max_episode_steps, other.video_max_episode_steps) == (None, None)


@pytest.mark.parametrize(
    ("n_envs", "asked", "notice"),
    [
        (100_000, 512, "n_envs is 512: 512 env steps are fewer than one step of 100,000 environments."),
        (
            32,
            2_000,
            "max_env_steps is 1,984: 2,000 is no multiple of what is stepped at once, and a budget is never exceeded.",
        ),
    ],
)
def test_a_budget_that_does_not_fit_is_said(n_envs, asked, notice):
    loaded = load_experiment("CartPole-v1:ppo", f"n_envs={n_envs}", f"max_env_steps={asked}", "batch_size=0.5")
    assert loaded.config.max_env_steps <= asked
    assert loaded.notices[0] == notice


def test_processes_share_the_budget():
    config = load_experiment("CartPole-v1:ppo", "n_envs=8", "devices=2", "max_env_steps=1000").config
    assert (config.n_envs, config.max_env_steps) == (8, 992)
    few = load_experiment("CartPole-v1:ppo", "n_envs=8", "devices=2", "max_env_steps=10", "batch_size=1").config
    assert (few.n_envs, few.max_env_steps) == (5, 10)
