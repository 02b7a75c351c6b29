"""Each kind of bad input: a message of one screen that names the thing and the fix, code 2, earlier checkpoints untouched."""

import os
import shutil
import sys
import textwrap

import pytest

from gymlab.engine.run import Run


def refused(shown, *parts):
    assert shown.code == 2, shown.err
    assert "Traceback" not in shown.err
    assert len(shown.err.splitlines()) <= 24
    assert shown.out == ""
    for part in parts:
        assert part in shown.err, shown.err


def test_unknown_environment(cli):
    refused(cli("train", "CartPoll-v1:ppo"), "'CartPoll-v1'", "CartPole-v1")
    refused(cli("train", "CartPoll-v1", "--algo", "ppo"), "'CartPoll-v1'", "CartPole-v1")


def test_unknown_variant(cli):
    refused(cli("train", "CartPole-v1:poo"), "'poo'", "'ppo'")


def test_a_name_without_variant(cli):
    refused(cli("train", "CartPole-v1"), "CartPole-v1:ppo", "--algo")


def test_unknown_algorithm(cli):
    refused(cli("train", "CartPole-v1", "--algo", "pppo"), "'pppo'", "'ppo'")


def test_unknown_key(cli):
    refused(cli("train", "CartPole-v1:ppo", "n_env=4"), "n_env", "'n_envs'")


def test_unknown_key_in_a_file(cli, tmp_path):
    (tmp_path / "conf" / "environments").mkdir(parents=True)
    (tmp_path / "conf" / "environments" / "CartPole-v1.yaml").write_text("env_id: CartPole-v1\nppo:\n  n_stepz: 4\n")
    refused(cli("train", "CartPole-v1:ppo"), "CartPole-v1.yaml", "n_stepz", "'n_steps'")


def test_wrong_type(cli):
    refused(cli("train", "CartPole-v1:ppo", "n_envs=many"), "n_envs", "many", "integer")


def test_wrong_value(cli):
    refused(cli("train", "CartPole-v1:ppo", "n_envs=0"), "n_envs", "1", "0")


def test_a_batch_that_does_not_divide(cli):
    refused(cli("train", "CartPole-v1:ppo", "n_envs=8", "n_steps=32", "batch_size=100"), "batch_size 100", "256", "128")


def test_missing_extra(cli, monkeypatch, tiny):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    refused(cli("train", "LunarLander-v3", "--algo", "ppo", *tiny), "LunarLander-v3", "pip install 'gymlab[box2d]'")


def test_a_runs_directory_that_cannot_be_made(cli, tmp_path, tiny):
    (tmp_path / "file").write_text("")
    refused(cli("train", "CartPole-v1:ppo", *tiny, "--runs-dir", "file/runs"), "file/runs", "--runs-dir")


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not hold for root")
def test_a_runs_directory_without_permission(cli, tmp_path, tiny):
    (tmp_path / "runs").mkdir(mode=0o500)
    refused(cli("train", "CartPole-v1:ppo", *tiny), "runs", "--runs-dir")


def test_a_run_id_that_is_taken_or_leaves_the_directory(cli, tmp_path, tiny):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    refused(cli("train", "CartPole-v1:ppo", *tiny, "--run-id", "mine"), "'mine'", "--run-id")
    refused(cli("train", "CartPole-v1:ppo", *tiny, "--run-id", "../mine"), "'../mine'")


def test_a_run_that_is_not_there(cli, trained):
    refused(cli("eval", "tinny", "--runs-dir", trained), "'tinny'", "'tiny'")
    refused(cli("eval"), "no run", "runs")
    refused(cli("eval", "tiny/epoch=99", "--runs-dir", trained), "epoch=99", "@best")


def test_a_corrupt_checkpoint(cli, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs", symlinks=True)
    checkpoints = Run(tmp_path / "runs" / "tiny").checkpoints.all()
    assert len(checkpoints) > 1
    damage(checkpoints[-1].path / "model.safetensors")
    name = checkpoints[-1].path.name.removesuffix(".ckpt")
    refused(cli("eval", f"tiny/{name}"), name, "damaged", "model.safetensors", "earlier checkpoint")
    earlier = cli("eval", "tiny", "--episodes", "2", "--json")
    assert earlier.code == 0, earlier.err
    assert earlier.json()["checkpoint"].endswith(checkpoints[-2].path.name)
    for checkpoint in checkpoints[:-1]:
        damage(checkpoint.path / "model.safetensors")
    refused(cli("eval", "tiny"), "No checkpoint of the run is whole", "model.safetensors")


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def test_a_nan_reward_is_named_and_earlier_checkpoints_stay(cli, tmp_path, monkeypatch, tiny):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "nan_reward_plugin.py").write_text(
        textwrap.dedent(
            """
            import gymnasium as gym
            import numpy as np

            class NanReward(gym.Env):
                observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
                action_space = gym.spaces.Discrete(2)
                age = 0

                def reset(self, *, seed=None, options=None):
                    super().reset(seed=seed)
                    self.left = 5
                    return np.zeros(2, np.float32), {}

                def step(self, action):
                    self.age += 1
                    self.left -= 1
                    reward = float("nan") if self.age > 80 else 1.0
                    return np.zeros(2, np.float32), reward, self.left == 0, False, {}

            gym.register("NanReward-v0", entry_point=NanReward)
            """
        )
    )
    arguments = [
        "NanReward-v0",
        "--algo",
        "ppo",
        *tiny,
        "eval_freq_epochs=1",
        "vectorization_mode=sync",
        "early_stop_on_eval_threshold=false",
    ]
    shown = cli("train", *arguments, "--plugin", "nan_reward_plugin", "--run-id", "nan", "-q")
    refused(shown, "NanReward-v0", "reward", "not finite", "nan")
    run = Run(tmp_path / "runs" / "nan")
    assert run.status == "crashed"
    assert "reward" in run.record["reason"]
    assert len(run.checkpoints.all()) >= 2
    for checkpoint in run.checkpoints.all():
        checkpoint.verify()


def test_a_plugin_that_is_not_there(cli):
    refused(cli("train", "CartPole-v1:ppo", "--plugin", "no_such_plugin"), "no_such_plugin", "--plugin")


DANGEROUS = {
    "plain": "{_target_: os.system, command: touch pwned}",
    "nested in a list": "{_target_: torch.nn.Sequential, parts: [{_target_: os.system, command: touch pwned}]}",
    "behind torch": "{_target_: torch.nn.parameter.torch.os.system, command: touch pwned}",
}


@pytest.mark.parametrize("value", DANGEROUS.values(), ids=DANGEROUS)
@pytest.mark.parametrize("command", ["train", "describe"])
def test_a_target_that_would_run_code_is_refused_by_name(cli, tmp_path, command, value, tiny):
    name = "torch.nn.parameter.torch.os.system" if "parameter" in value else "os.system"
    refused(cli(command, "CartPole-v1:ppo", *tiny, f"components.x={value}"), f"'{name}'", "refused", "components.x")
    (tmp_path / "conf" / "environments").mkdir(parents=True)
    (tmp_path / "conf" / "environments" / "CartPole-v1.yaml").write_text(
        f"env_id: CartPole-v1\nppo:\n  n_envs: 2\n  components:\n    x: {value}\n"
    )
    refused(cli(command, "CartPole-v1:ppo"), f"'{name}'", "refused")
    assert not (tmp_path / "pwned").exists()
    assert not (tmp_path / "runs").exists()
