"""A NaN anywhere, a full disk, a directory that cannot be written: each stops the run by name and loses nothing."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import gymlab
from gymlab.components.analytic import AnalyticGradient
from gymlab.components.autograd import AutogradGradient
from gymlab.engine.files import read_json
from gymlab.engine.run import find_run
from gymlab.errors import NonFiniteError

BAD_ENVIRONMENT = """
import os
import gymnasium as gym
import numpy as np

class Bad(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    total = 0

    def __init__(self, broken):
        self.broken = broken

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        Bad.total += 1
        bad = float("nan") if Bad.total > 1500 else 0.5
        observation = np.full(2, bad if self.broken == "observation" else 0.5, np.float32)
        return observation, bad if self.broken == "reward" else 1.0, self.steps == 10, False, {}

gym.register("Bad-v0", Bad)
"""
SETTINGS = {
    "n_envs": 2,
    "n_steps": 64,
    "batch_size": 64,
    "max_env_steps": 8192,
    "quiet": True,
    "video": False,
    "eval_freq_epochs": 1,
    "eval_episodes": 2,
    "eval_max_episode_steps": 10,
    "early_stop_on_eval_threshold": False,
}
WHERE = 3
"""The update in which a number is made NaN."""


def assert_reported(error, runs_dir, tensor):
    """The error names the tensor and the step; the data lie in the run; the checkpoint from before is whole."""
    run, _ = find_run("@last", runs_dir)
    assert error.tensor == tensor
    assert run.status == "crashed"
    assert run.record["reason"].startswith("NonFiniteError")
    where = read_json(run.dir / "non_finite" / "where.json")
    assert where["tensor"] == tensor
    assert where["counters"]["env_steps"] > 0
    assert f"{where['counters']['env_steps']:,} env steps" in str(error)
    checkpoint = run.checkpoints.find("@last")
    assert all(np.isfinite(tensor.numpy()).all() for tensor in checkpoint.read_model().values())
    return load_file(run.dir / "non_finite" / "batch.safetensors"), where, checkpoint


@pytest.mark.parametrize("algo", ["ppo", "reinforce"])
@pytest.mark.parametrize("broken", ["reward", "observation"])
def test_what_an_environment_returns(tmp_path, monkeypatch, algo, broken):
    (tmp_path / "bad_env.py").write_text(BAD_ENVIRONMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_env", raising=False)
    with pytest.raises(NonFiniteError, match=rf"Bad-v0.*{broken}.*environment [01], episode") as caught:
        gymlab.train(
            "Bad-v0",
            algo=algo,
            plugins=["bad_env"],
            env_kwargs=[f"broken={broken}"],
            vectorization_mode="sync",
            runs_dir=tmp_path / "runs",
            **SETTINGS,
        )
    arrays, where, _ = assert_reported(caught.value, tmp_path / "runs", broken)
    assert np.isnan(arrays[f"step/{broken}"][where["data"]["environment"]]).all()
    assert arrays["actions"].shape == (2,)
    assert arrays["acted_on"].shape == (2, 2)


def break_gradient(monkeypatch, kind, what):
    """Make a loss or a gradient NaN in the first minibatch of update number WHERE; each has two minibatches."""
    compute, calls = kind.__call__, []

    def broken(self, batch, coefficients):
        statistics = compute(self, batch, coefficients)
        calls.append(batch)
        if len(calls) == (WHERE - 1) * 2 + 1:
            if what == "loss":
                statistics[0] = float("nan")
            else:
                gradient = self.mlp.bias_gradients[0] if kind is AnalyticGradient else self._flat.gradient
                gradient[0] = float("nan")
        return statistics

    monkeypatch.setattr(kind, "__call__", broken)


@pytest.mark.parametrize("what", ["loss", "gradient"])
@pytest.mark.parametrize(
    ("experiment", "kind", "fields", "parts"),
    [
        ("CartPole-v1:ppo", AnalyticGradient, {}, ("trunk",)),
        ("CartPole-v1:ppo", AutogradGradient, {"update_backend": "eager"}, ("trunk",)),
        ("CartPole-v1:reinforce", AutogradGradient, {"unfinished": "bootstrap"}, ("policy", "value")),
    ],
    ids=["analytic", "eager", "reinforce"],
)
def test_what_an_update_computes(tmp_path, monkeypatch, experiment, kind, fields, parts, what):
    break_gradient(monkeypatch, kind, what)
    with pytest.raises(NonFiniteError, match=r"is nan in minibatch 1 of the update after 384 env steps") as caught:
        gymlab.train(experiment, runs_dir=tmp_path, **{**SETTINGS, "n_epochs": 1, **fields})
    named = {"loss": ["loss/policy"], "gradient": [f"opt/grads/norm/{part}" for part in parts]}[what]
    assert caught.value.tensor in named
    arrays, where, checkpoint = assert_reported(caught.value, tmp_path, caught.value.tensor)
    assert where["counters"]["env_steps"] == WHERE * 128
    assert checkpoint.place == (WHERE - 1, 0)
    assert arrays["batch/0/observations"].shape == (64, 2, 4)
    assert np.isfinite(arrays["batch/0/rewards"]).all()


SMALL_DISK = Path(__file__).with_name("small_disk.py")


def can_mount():
    """Whether this machine lets a test have a file system of its own."""
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_mount(), reason="needs unshare and the right to mount a tmpfs in it")
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_disk_that_takes_no_more(tmp_path, fault):
    """small_disk.py trains on a file system of 2 MB that fills up in the middle of a save, makes room and resumes."""
    command = ["unshare", "-rm", sys.executable, str(SMALL_DISK), str(tmp_path / "disk"), fault]
    (tmp_path / "disk").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal" in done.stdout
