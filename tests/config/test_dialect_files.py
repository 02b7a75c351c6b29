"""Whole files in each of the three generations load unchanged, with the algorithms' own schemas.

`files/first`: one file an algorithm, `inherit_from`. `files/second`: one file an environment, `inherits`, anchors, schedule keys.
`files/third`: fields at the root under today's names.
"""

from pathlib import Path

import pytest
from config_helpers import of_what_is_written

import gymlab
from gymlab.config import discover, dump
from gymlab.config.derive import cores
from gymlab.config.schema import Schedule
from gymlab.errors import ConfigError

FILES = Path(__file__).parent / "files"


def loaded(generation, experiment, **options):
    return gymlab.resolve(experiment, config_dir=FILES / generation, **options)


@pytest.mark.parametrize("generation", ["first", "second", "third"])
def test_one_experiment_in_three_generations_is_one_config(generation):
    resolved = loaded(generation, "CartPole-v1:ppo")
    assert of_what_is_written(resolved) == ()
    config = resolved.config
    assert (config.env_id, config.algo_id, config.variant, config.project_id) == (
        "CartPole-v1",
        "ppo",
        "ppo",
        "CartPole-v1",
    )
    assert (config.n_envs, config.n_steps, config.batch_size, config.n_epochs) == (8, 32, 256, 20)
    assert (config.max_env_steps, config.seed, config.vectorization_mode) == (100_000, 0, "sync")
    assert (config.gamma, config.gae_lambda, config.ent_coef) == (0.98, 0.8, 0.0)
    assert (config.policy_lr, config.clip_range) == (Schedule(start=0.001), Schedule(start=0.2))
    # Written out in the second generation, the default in the others.
    assert (config.hidden_dims, config.activation) in ((None, None), ((64, 64), "tanh"))
    assert config.solved_threshold == 475


@pytest.mark.parametrize("generation", ["first", "second", "third"])
def test_what_is_written_again_is_canonical_and_loads_as_the_same(generation, tmp_path):
    import json

    config = loaded(generation, "CartPole-v1:ppo").config
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dump(config)))
    assert gymlab.resolve(str(path)).config == config
    assert not {"n_timesteps", "max_timesteps", "learning_rate", "subproc"} & set(dump(config))


EXPECTED = [
    ("first", "CartPole-v1_slow:ppo", {"vectorization_mode": "async", "policy_lr": 3e-4, "env_id": "CartPole-v1"}),
    (
        "first",
        "Pendulum-v1:ppo",
        {
            "normalize_obs": "rolling",
            "normalize_reward": True,
            "clip_range_vf": None,
            "early_stop_on_eval_threshold": -200.0,
            "policy": "mlp",
            "n_envs": 8,
        },
    ),
    (
        "first",
        "ALE/Pong-v5:ppo",
        {"policy": "cnn", "frame_skip": 4, "frame_stack": 4, "max_env_steps": 10_000_000, "resize_obs": (84, 84)},
    ),
    ("first", "ALE-Pong-v5:ppo", {"env_id": "ALE/Pong-v5", "obs_type": "rgb", "grayscale_obs": True}),
    ("first", "MyTask-v0:ppo", {"policy": "MyOwnNetwork", "env_id": "CartPole-v1", "n_steps": 32}),
    ("first", "FrozenLake-v1:qlearning", {"algo_id": "q_learning", "policy_lr": 0.1, "n_envs": 1}),
    ("first", "FrozenLake-v1:q_learning", {"env_kwargs": {"is_slippery": True}, "max_env_steps": 100_000}),
    (
        "second",
        "CartPole-v1:reinforce",
        {
            "policy_targets": "advantages",
            "batch_size": 1024,
            "policy_lr": Schedule(start=2e-2, end=1e-3, **{"from": 0.25}, to=50_000),
            "returns_type": "mc:episode",
            "normalize_returns": "batch",
            "eval_warmup_epochs": 12,
            "eval_freq_epochs": 15,
            "early_stop_on_train_threshold": 475.0,
            "seed": 0,
        },
    ),
    ("second", "CartPole-v1:CartPole-v1_reinforce", {"variant": "reinforce", "n_steps": 256}),
    (
        "second",
        "ALE/Pong-v5:rgb",
        {"n_steps": 64, "policy": "cnn_actorcritic", "resize_obs": (84, 84), "project_id": "Pong", "frame_stack": 4},
    ),
    (
        "second",
        "Pong:objects",
        {
            "n_steps": 64,
            "n_envs": cores(),
            "batch_size": 16 * cores(),
            "frame_skip": 4,
            "frame_stack": 1,
            "policy_lr": Schedule(start=1e-3, end=1e-5, **{"from": 0.1}, to=0.9, schedule="cosine", warmup=0.1),
            "solved_threshold": 18.0,
            "env_wrappers": (
                {"id": "PongV5_FeatureExtractor", "clip": True, "action_ids": [0, 2, 3]},
                {"id": "PongV5_RewardShaper", "paddle_hit_reward": 0.1},
            ),
        },
    ),
    (
        "third",
        "CartPole-v1:everything",
        {
            "algo_id": "ppo",
            "batch_size": 64,
            "max_epochs": 1000,
            "max_episode_steps": 400,
            "solved_threshold": 450.0,
            "policy": "mlp_actorcritic",
            "optimizer": "adam",
            "target_kl": 0.02,
            "normalize_advantages": "rollout",
            "devices": "auto",
            "init_from_run": "@last/@best",
            "replay_ratio": 1.0,
            "replay_is_clip": 10.0,
            "normalize_obs": "static",
            "normalize_reward": True,
            "eval_freq_epochs": 39,
            "eval_recording_freq_epochs": 50,
            "env_kwargs": {},
        },
    ),
    ("third", "Taxi-v3:qlearning", {"env_id": "Taxi-v4", "project_id": "Taxi-v3", "max_env_steps": 200_000}),
]


@pytest.mark.parametrize(
    ("generation", "experiment", "expected"), EXPECTED, ids=[f"{one}-{two}" for one, two, _ in EXPECTED]
)
def test_files_of_each_generation(generation, experiment, expected):
    config = loaded(generation, experiment).config
    assert {name: getattr(config, name) for name in expected} == expected


def test_a_users_legacy_file_is_stronger_than_what_ships():
    assert loaded("first", "Pendulum-v1:ppo").config.n_envs == 8
    assert loaded("first", "LunarLander-v3:ppo").config.env_id == "LunarLander-v3"


def test_what_no_longer_means_anything_is_told_in_one_line():
    (notice,) = of_what_is_written(loaded("second", "Pong:objects"))
    assert "ALE-Pong-v5.yaml:9" in notice
    assert "`eval_async` no longer means anything" in notice
    assert any("Taxi-v4 is used" in notice for notice in loaded("third", "Taxi-v3:qlearning").notices)


def test_sections_that_are_bases_or_fields_are_no_variants():
    found = {entry.name: [variant.name for variant in entry.variants] for entry in discover(FILES / "second")}
    assert found["ALE-Pong-v5"][:2] == ["rgb", "objects"]
    assert not [name for name in found["CartPole-v1"] if name.startswith("_") or name in ("spec", "env_kwargs")]
    with pytest.raises(ConfigError, match=r"'CartPole-v1' names no variant"):
        loaded("third", "CartPole-v1")


def test_a_schedule_that_cannot_be_is_refused_in_any_dialect():
    for override in ("policy_lr={start: 1, from: 0.9, to: 0.1}", "policy_lr_schedule_end=0.0"):
        with pytest.raises(ConfigError, match=r"not after its start|cannot end"):
            loaded("second", "CartPole-v1:ppo", overrides=[override])
