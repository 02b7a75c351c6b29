"""Settings that end in words: what is wrong, what is missing, how to put it right, and nothing left behind."""

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import gymlab
from gymlab.api import resolve
from gymlab.errors import ConfigError

FIELDS = {"n_envs": 2, "n_steps": 32, "batch_size": 64, "n_epochs": 1, "max_env_steps": 128, "eval_episodes": 2}
WORDS = [f"{name}={value}" for name, value in FIELDS.items()] + ["video=false", "-q"]


def test_a_buffer_without_a_target_is_refused_before_anything_is_trained(cli, tmp_path):
    shown = cli("train", "CartPole-v1:ppo", *WORDS, "buffers.foo.bar=3")
    assert shown.code == 2
    assert "buffers.foo" in shown.err
    assert not (tmp_path / "runs").exists()


def test_a_gpu_that_is_not_there_names_the_fix(monkeypatch):
    import torch

    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match=r"accelerator='gpu'.*Set accelerator=auto.* or accelerator=cpu"):
        gymlab.train("CartPole-v1:ppo", accelerator="gpu", **FIELDS)


def test_a_tracker_that_does_not_start_leaves_no_run(cli, tmp_path, monkeypatch):
    from gymlab.engine import train as training
    from gymlab.errors import GymlabError

    assert cli("train", "CartPole-v1:ppo", *WORDS, "--run-id", "before").code == 0

    def fail(*arguments, **keywords):
        raise GymlabError("Weights & Biases did not start")

    monkeypatch.setattr(training, "open_monitor", fail)
    shown = cli("train", "CartPole-v1:ppo", *WORDS, "--run-id", "after")
    assert shown.code == 2
    assert "did not start" in shown.err
    assert not (tmp_path / "runs" / "after").exists()
    assert (tmp_path / "runs" / "@last").readlink().name == "before"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / "runs" / "before" / "metrics.csv").read_text()
    monkeypatch.setattr(training, "open_monitor", fail)
    assert cli("train", "--resume", "before", "max_env_steps=256").code == 2
    assert (tmp_path / "runs" / "before" / "metrics.csv").read_text() == before


def test_a_video_that_cannot_be_written_is_refused_before_it_is_played(cli, trained, tmp_path):
    (tmp_path / "a file").write_text("")
    shown = cli("play", f"{trained}/tiny", "--headless", "--episodes", "1", "--save", "a file/video.mp4")
    assert shown.code == 2
    assert "cannot be written to" in shown.err
    assert "return" not in shown.out


def test_pictures_of_a_gymnasium_environment_are_of_a_sensible_size():
    loaded = resolve("CartPole-v1", algo="ppo", overrides=["obs_type=rgb"])
    assert loaded.config.resize_obs == (84, 84)
    assert sum("84x84" in notice for notice in loaded.notices) == 1
    wanted = resolve("CartPole-v1", algo="ppo", overrides=["obs_type=rgb", "resize_obs=[40,60]"])
    assert wanted.config.resize_obs == (40, 60)
    assert not any("84x84" in notice for notice in wanted.notices)
    assert resolve("CartPole-v1", algo="ppo").config.resize_obs is None
    assert resolve("MiniGrid-Empty-8x8-v0", algo="ppo", overrides=["obs_type=rgb"]).config.resize_obs is None


def test_a_script_in_several_processes_is_told_that_it_runs_in_each(monkeypatch):
    from gymlab import api

    told = []
    monkeypatch.setattr(api, "train_config", lambda config, **keywords: told.append(keywords["notices"]))
    gymlab.train("CartPole-v1:ppo", devices=2)
    gymlab.train("CartPole-v1:ppo", devices=2, command="gymlab train CartPole-v1:ppo devices=2")
    gymlab.train("CartPole-v1:ppo")
    assert [sum("LOCAL_RANK" in notice for notice in notices) for notices in told] == [1, 0, 0]


def test_episodes_of_an_environment_that_is_registered_by_its_class(cli, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setitem(
        gym.registry,
        "ByClass-v0",
        gym.envs.registration.EnvSpec("ByClass-v0", entry_point=CartPoleEnv, max_episode_steps=20),
    )
    gymlab.train("ByClass-v0", algo="ppo", run_id="one", **FIELDS, video=False, quiet=True)
    shown = cli("record", "one", "--episodes", "2", "--out", "data", "--json")
    assert shown.code == 0, shown.err
    monkeypatch.setenv("MINARI_DATASETS_PATH", shown.json()["root"])
    dataset = minari.load_dataset(shown.json()["dataset_id"])
    assert dataset.total_episodes == 2
    assert dataset.storage.metadata["environment"]["id"] == "ByClass-v0"


def test_a_scenario_may_be_named_in_the_arguments_of_doom():
    pytest.importorskip("vizdoom")
    from gymlab.envs.families import family_of

    family = family_of("VizDoom-E1M1-v0")
    own = family.env_kwargs("VizDoom-E1M1-v0", {})["config_path"]
    for name in ("E1M1", "e1m1"):
        assert family.env_kwargs("VizDoom-E1M1-v0", {"scenario": name})["config_path"] == own
    other = family.env_kwargs("VizDoom-E1M1-v0", {"scenario": "basic"})
    assert other["config_path"].name == "basic.cfg"
    assert "scenario" not in other
    with pytest.raises(ConfigError, match=r"there is no basik\.cfg\. Did you mean 'basic'"):
        family.env_kwargs("VizDoom-E1M1-v0", {"scenario": "basik"})
    with pytest.raises(ConfigError, match="expected a scenario's name"):
        family.env_kwargs("VizDoom-E1M1-v0", {"scenario": "../basic"})


def test_a_phase_without_progress_names_the_setting_and_the_amount(cli):
    small = [
        "deter=16",
        "hidden=8",
        "units=8",
        "stoch=4",
        "classes=4",
        "blocks=2",
        "horizon=3",
        "replay_size=2000",
        "prefill_steps=8",
    ]
    gather = "{name: gather, type: online, hooks: [collect], buffer: replay, duration_steps: 32}"
    learn = "{name: learn, type: offline, hooks: [update_world_model], buffer: replay, duration_updates: 4}"
    settings = [
        "n_envs=2",
        "batch_size=16",
        "batch_length=8",
        f"training.phases=[{gather}, {learn}]",
        "max_env_steps=1000",
    ]
    shown = cli("train", "CartPole-v1", "--algo", "dreamer", *small, *settings, "video=false", "-q")
    assert shown.code == 2
    assert "'learn' makes no progress" in shown.err
    assert "needs 128 (batch_size, and the length of sequences): collect" in shown.err
    assert "duration_steps" in shown.err
