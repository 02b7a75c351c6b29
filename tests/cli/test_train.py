"""`gymlab train` from end to end, on a budget of a second."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys

import pytest
import yaml

from gymlab.cli.main import main
from gymlab.engine.run import Run, find_run
from gymlab.envs.wrappers import EnvWrapperRegistry


def test_train_evaluates_and_leaves_a_run(cli, tmp_path, tiny):
    shown = cli("train", "CartPole-v1:ppo", *tiny, "--seed", "0", "--run-id", "first")
    assert shown.code == 0, shown.err
    run = Run(tmp_path / "runs" / "first")
    assert run.status == "finished"
    assert run.record["seed"] == 0
    assert run.record["counters"]["env_steps"] == 512
    typed = ["gymlab", "train", "CartPole-v1:ppo", *tiny, "--seed", "0", "--run-id", "first"]
    assert run.record["command"] == shlex.join(typed)
    assert run.record["repeat"] == "gymlab repeat first"
    assert "\n```\ngymlab repeat first\n```\n" in (run.dir / "report.md").read_text()
    assert "gymlab repeat first" in shown.out


def test_json_stands_alone_on_the_output(cli, tmp_path, tiny):
    shown = cli("train", "CartPole-v1:ppo", *tiny, "--max-env-steps", "256", "--runs-dir", "elsewhere", "--json")
    assert shown.code == 0, shown.err
    result = shown.json()
    assert result["status"] == "finished"
    assert result["env_steps"] == 256
    assert result["experiment"] == "CartPole-v1:ppo"
    assert {"mean", "ci95", "n", "min", "max"} <= result["result"].keys()
    assert result["result"]["n"] == 5
    assert (tmp_path / "elsewhere" / result["run"] / "config.json").is_file()
    assert os.readlink(tmp_path / "elsewhere" / "@last") == result["run"]


def test_train_alone_is_a_bandit(cli):
    shown = cli("train", "--cfg", "job")
    assert shown.code == 0, shown.err
    config = yaml.safe_load(shown.out)
    assert (config["env_id"], config["variant"]) == ("Bandit-v0", "ppo")


def test_any_gymnasium_id_trains_without_yaml(cli, tiny):
    shown = cli(
        "train", "Acrobot-v1", "--algo", "ppo", "max_episode_steps=20", *tiny, "eval_freq_epochs=null", "--json"
    )
    assert shown.code == 0, shown.err
    assert shown.json()["env_steps"] == 512


def test_an_environment_of_the_users_own(cli, tmp_path, monkeypatch, tiny):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "envs_of_mine.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gym.register('Mine-v0', entry_point=CartPoleEnv, max_episode_steps=20)\n"
    )
    shown = cli("train", "envs_of_mine:Mine-v0", "--algo", "ppo", *tiny, "--run-id", "mine", "--json")
    assert shown.code == 0, shown.err
    assert shown.json()["result"]["max"] <= 20
    monkeypatch.delitem(sys.modules, "envs_of_mine")
    refused = cli("eval", "mine")
    assert refused.code == 2
    assert "--plugin envs_of_mine" in refused.err
    assert cli("eval", "mine", "--plugin", "envs_of_mine", "--episodes", "2", "--json").json()["n"] == 2


def test_a_composed_experiment(cli, tmp_path):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text("env_id: CartPole-v1\nalgo_id: ppo\nn_envs: 3\n")
    shown = cli("train", "experiment=mine", "experiment.gamma=0.5", "--seed", "7", "--cfg", "job")
    assert shown.code == 0, shown.err
    config = yaml.safe_load(shown.out)
    assert (config["n_envs"], config["gamma"], config["seed"]) == (3, 0.5, 7)


def test_what_cfg_job_prints_loads_back(cli, tmp_path):
    shown = cli(
        "train", "CartPole-v1:ppo", "policy_lr=lin_0.002", "n_envs=4", "batch_size=128", "--seed", "0", "--cfg", "job"
    )
    assert shown.code == 0, shown.err
    config = yaml.safe_load(shown.out)
    assert config["n_envs"] == 4
    assert config["seed"] == 0
    assert config["policy_lr"]["start"] == 0.002
    (tmp_path / "job.yaml").write_text(shown.out)
    again = cli("train", "job.yaml", "--cfg", "job")
    assert yaml.safe_load(again.out) == config
    assert not (tmp_path / "runs").exists()


def test_sources_lists_every_file_that_was_read(cli, tmp_path):
    folder = tmp_path / "config" / "environments"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text("env_id: Acrobot-v1\nppo: {n_envs: 3}\n")
    (folder / "b.yaml").write_text("env_id: CartPole-v1\nppo: {}\n")
    shown = cli("train", "b:ppo", "--cfg", "job", "--sources")
    assert shown.code == 0, shown.err
    assert "./config is searched: environments/ holds the files a.yaml, b.yaml." in shown.err
    assert yaml.safe_load(shown.out)["project_id"] == "b"
    lines = shown.out.splitlines()
    assert f"# from {folder / 'b.yaml'}" in lines
    # The description of the environment is ours.
    assert any(line.startswith("# from ") and line.endswith("CartPole-v1.yaml") for line in lines)
    assert f"#   {folder / 'a.yaml'}" in lines
    told = json.loads(cli("train", "b:ppo", "--cfg", "job", "--sources", "--json").out)
    assert told["sources"][0] == str(folder / "b.yaml")
    assert str(folder / "a.yaml") in told["read"]
    shown = cli("train", "b:ppo", "--sources")
    assert shown.code != 0
    assert "--cfg job" in shown.err


def test_a_users_conf_lies_on_top(cli, tmp_path):
    folder = tmp_path / "mine" / "environments"
    folder.mkdir(parents=True)
    (folder / "Acrobot-v1.yaml").write_text("env_id: Acrobot-v1\nslow:\n  algo_id: ppo\n  n_envs: 3\n")
    shown = cli("train", "Acrobot-v1:slow", "--config-dir", "mine", "--cfg", "job")
    assert shown.code == 0, shown.err
    assert yaml.safe_load(shown.out)["n_envs"] == 3


def test_quiet_and_env_kwargs_reach_the_config(cli):
    shown = cli("train", "Bandit-v0:ppo", "-q", "--env-kwargs", "n_arms=3", "--override", "gamma=0.5", "--cfg", "job")
    config = yaml.safe_load(shown.out)
    assert config["quiet"] is True
    assert config["env_kwargs"]["n_arms"] == 3
    assert config["gamma"] == 0.5


def test_list_envs(cli):
    shown = cli("train", "--list-envs", "cart", "--json")
    assert [entry["id"] for entry in shown.json()["environments"]] == ["dmc/cartpole-swingup", "CartPole-v1"]
    assert "CartPole-v1" in cli("train", "--list-envs").out


def test_init_from_run_begins_with_the_parameters_of_another(cli, trained, tmp_path, tiny):
    reference = f"{trained}/tiny"
    shown = cli(
        "train", "CartPole-v1:ppo", *tiny, "policy_lr=0", "--init-from-run", reference, "--run-id", "second", "-q"
    )
    assert shown.code == 0, shown.err
    source, _ = find_run(reference, trained)
    old, new = source.checkpoints.find().read_model(), Run(tmp_path / "runs" / "second").checkpoints.find().read_model()
    assert old.keys() == new.keys()
    assert all(old[name].equal(new[name]) for name in old)


def test_a_secret_on_the_command_line_is_not_recorded(cli, tmp_path, tiny):
    secret = "hf_" + "a" * 30
    shown = cli("train", "CartPole-v1:ppo", *tiny, f"description={secret}", "--run-id", "secret", "-q")
    assert shown.code == 0, shown.err
    written = [
        path.read_text(errors="replace")
        for path in (tmp_path / "runs").rglob("*")
        if path.suffix in (".json", ".md", ".log")
    ]
    assert written
    assert not any(secret in text for text in written)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends_cleanly(tmp_path, number, wait_for):
    command = [sys.executable, "-m", "gymlab", "train", "CartPole-v1:ppo", "max_env_steps=1e8", "eval_freq_epochs=null"]
    process = subprocess.Popen(
        [*command, "--run-id", "long", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    run = Run(tmp_path / "runs" / "long")
    wait_for(lambda: (run.dir / "metrics.csv").exists() and run.metrics, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err.decode()
    assert json.loads(out)["status"] == "stopped"
    run.checkpoints.find().verify()


def test_main_can_be_called_from_python(tmp_path, tiny):
    assert main(["train", "CartPole-v1:ppo", *tiny, "-q", "--runs-dir", str(tmp_path)]) == 0


def test_resume_goes_on_in_the_same_run(cli, tmp_path, tiny):
    assert cli("train", "CartPole-v1:ppo", *tiny, "--run-id", "one", "-q").code == 0
    done = cli("train", "--resume", "one", "--max-env-steps", "1024", "-q", "--json").json()
    assert (done["run"], done["env_steps"], done["status"]) == ("one", 1024, "finished")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--resume", "one", "CartPole-v1:ppo"], "experiment"),
        (["--resume", "one", "--seeds", "0-1"], "--seeds"),
        (["--epoch", "3"], "--resume"),
        (["--resume", "one", "optimizer=sgd"], "optimizer cannot change"),
        (["--resume", "one", "--seed", "5"], "seed cannot change"),
        (["--resume", "nothing"], "No run 'nothing'"),
    ],
)
def test_resume_refuses_what_would_be_another_run(cli, tiny, arguments, named):
    cli("train", "CartPole-v1:ppo", *tiny, "--run-id", "one", "-q")
    refused = cli("train", *arguments)
    assert refused.code == 2
    assert named in refused.err


def test_a_wrapper_of_the_users_own_from_a_plugin(cli, tiny, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(EnvWrapperRegistry, "_entries", dict(EnvWrapperRegistry._entries))
    (tmp_path / "wrappers_of_mine.py").write_text(
        "import gymnasium as gym\n"
        "from gymlab.envs.wrappers import EnvWrapperRegistry\n"
        "@EnvWrapperRegistry.register\n"
        "class TimesReward(gym.RewardWrapper):\n"
        '    """Multiplies the reward."""\n'
        "    def __init__(self, env, factor: float):\n"
        "        super().__init__(env)\n"
        "        self.factor = factor\n"
        "    def reward(self, reward):\n"
        "        return self.factor * reward\n"
    )
    arguments = ["train", "CartPole-v1:ppo", *tiny, "env_wrappers=[{id: TimesReward, factor: 3}]", "--run-id", "times"]
    refused = cli(*arguments)
    assert refused.code == 2
    assert "TimesReward" in refused.err
    shown = cli(*arguments, "--plugin", "wrappers_of_mine", "--json")
    assert shown.code == 0, shown.err
    with (tmp_path / "runs" / "times" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    shaped, own = ([float(row[f"train/roll/{name}/mean"]) for row in rows] for name in ("ep_shaped_rew", "ep_rew"))
    assert shaped == pytest.approx([3 * value for value in own])
    wrong = cli(*arguments[:-3], "env_wrappers=[{id: TimesReward, facter: 3}]", "--plugin", "wrappers_of_mine")
    assert wrong.code == 2
    assert "'factor'" in wrong.err
