"""`gymlab repeat`: the line that a run prints trains it anew, whatever it was trained with."""

import json
import shlex
import sys

import gymlab
from gymlab.engine.run import Run

ENVIRONMENT = """
import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

class FromFile(CartPoleEnv):
    def __init__(self, file, render_mode=None):
        open(file).close()
        super().__init__()

gym.register("FromFile-v0", entry_point=FromFile, max_episode_steps=20)
"""


def again(cli, line):
    """What a printed line gives."""
    program, *words = shlex.split(line)
    assert program == "gymlab"
    shown = cli(*words, "-q", "--json")
    assert shown.code == 0, shown.err
    assert shown.json()["equal"] is True
    return shown.json()


def test_the_line_that_is_printed_repeats_each_of_several_seeds(cli, tmp_path, tiny):
    shown = cli("train", "CartPole-v1:ppo", *tiny, "--seeds", "0-1", "--run-id", "many", "video=false", "--json")
    assert shown.code == 0, shown.err
    for row in shown.json()["seeds"]:
        told = again(cli, row["repeat"])
        assert (told["repeats"], told["seed"]) == (row["run"], row["seed"])
        assert told["result"] == row["result"]


def test_the_line_names_what_only_the_user_may_name(cli, tmp_path, monkeypatch, tiny):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "maker_of_mazes.py").write_text(ENVIRONMENT)
    (tmp_path / "a file.txt").write_text("")
    file = f"file={tmp_path / 'a file.txt'}"
    words = ["maker_of_mazes:FromFile-v0", "--algo", "ppo", *tiny, "video=false", "--env-kwargs", file]
    shown = cli("train", *words, "--run-id", "one", "--json")
    assert shown.code == 0, shown.err
    line = shown.json()["repeat"]
    assert shlex.split(line) == ["gymlab", "repeat", "one", "--plugin", "maker_of_mazes", "--env-kwargs", file]
    again(cli, line)
    refused = cli("repeat", "one", "--plugin", "maker_of_mazes")
    assert refused.code == 2
    assert "name it yourself: --env-kwargs" in refused.err


def test_a_run_from_python_and_in_another_directory(cli, tmp_path):
    fields = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 1, "max_env_steps": 256, "video": False}
    run = gymlab.train("CartPole-v1:ppo", runs_dir="elsewhere", run_id="one", **fields, eval_episodes=2, quiet=True)
    assert "command" not in run.record
    shown = cli("runs", "show", "elsewhere/one")
    assert "gymlab repeat elsewhere/one" in shown.out
    assert again(cli, "gymlab repeat elsewhere/one")["run"] == "one-repeat"
    assert (tmp_path / "runs" / "one-repeat").is_dir()


def test_what_is_said_at_the_end(cli, trained):
    shown = cli("repeat", f"{trained}/tiny", "-q", "--run-id", "again")
    assert shown.code == 0, shown.err
    assert "again equals tiny, bit for bit: 4 rows of metrics.csv and the model at epoch=0004." in shown.out


def test_a_run_id_names_the_new_run_and_not_the_one_to_repeat(cli):
    shown = cli("repeat", "--run-id", "my-run")
    assert shown.code == 2
    assert "--run-id my-run names the new run here; RUN, the run to repeat, is missing." in shown.err
    assert shown.err.endswith("gymlab repeat my-run\n")
    assert "Usage: gymlab repeat RUN" in cli("repeat").err


def test_settings_are_not_for_a_repetition(cli, trained):
    shown = cli("repeat", "policy_lr=1")
    assert shown.code == 2
    assert "a repetition has the settings of its run" in shown.err
    shown = cli("repeat", "nothing")
    assert shown.code == 2
    assert "No run 'nothing'" in shown.err


def test_two_processes_repeat_together(tmp_path):
    import subprocess

    command = [sys.executable, "-m", "gymlab"]
    settings = ["devices=2", "accelerator=cpu", "max_env_steps=1024", "eval_freq_epochs=null", "video=false"]
    shared = ["-q", "--runs-dir", str(tmp_path)]
    done = subprocess.run([*command, "train", "CartPole-v1:ppo", *shared, "--run-id", "both", *settings], check=False)
    assert done.returncode == 0
    resumed = [*command, "train", *shared, "--resume", "both", "max_env_steps=1536"]
    assert subprocess.run(resumed, check=False).returncode == 0
    again = [*command, "repeat", "both", *shared, "--json"]
    done = subprocess.run(again, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["equal"] is True
    assert len(Run(tmp_path / "both-repeat").metrics["train/cnt/env_steps"]) == 3
