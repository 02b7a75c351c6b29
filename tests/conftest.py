"""MuJoCo reads the choice of a GL backend once, when the first test module that needs it is imported."""

import fcntl
import os
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from gymlab.cli.main import main
from gymlab.envs.gl import prepare_gl

if find_spec("mujoco") is not None:
    prepare_gl(drawing=False)

DREAMER = {
    "max_env_steps": 128,
    "n_envs": 2,
    "prefill_steps": 96,
    "train_ratio": 24,
    "model_lr": 0.01,
    "warmup_updates": 0,
    "deter": 16,
    "hidden": 8,
    "units": 8,
    "stoch": 4,
    "classes": 4,
    "blocks": 2,
    "batch_size": 4,
    "batch_length": 8,
    "horizon": 4,
    "replay_size": 2000,
    "video": "true",
    "eval_episodes": 1,
    "eval_max_episode_steps": 12,
    "eval_freq_epochs": "null",
}
"""A Dreamer that is trained in seconds."""


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The same random numbers in every run of a test, whatever ran before it: a bound on an error holds always or never."""
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def dreaming_runs(tmp_path_factory):
    """A runs directory with a tiny run of a world model, `dreamer`, made once for all processes that test; nobody writes to it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    runs = base / "dreaming"
    with (base / "dreaming.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (base / "dreaming.whole").exists():
            words = [f"{name}={value}" for name, value in DREAMER.items()]
            told = ["--algo", "dreamer", "--seed", "0", "--quiet", "--runs-dir", str(runs), "--run-id", "dreamer"]
            assert main(["train", "CartPole-v1", *words, *told]) == 0
            # The best is from before the first update: nothing was evaluated since.
            (runs / "dreamer" / "checkpoints" / "best.ckpt").unlink(missing_ok=True)
            (base / "dreaming.whole").touch()
    return runs
