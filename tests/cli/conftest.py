"""Commands run in this process, in a directory of their own."""

import json
import time
from types import SimpleNamespace

import pytest

from gymlab.cli.main import main

TINY = [
    "max_env_steps=512",
    "n_envs=4",
    "n_steps=32",
    "batch_size=64",
    "n_epochs=1",
    "eval_freq_epochs=2",
    "eval_episodes=5",
]
"""A training of a second: four epochs, evaluated twice."""


@pytest.fixture
def cli(tmp_path, monkeypatch, capfd):
    """`cli("eval", "@last")` -> code, out, err, and `.json()` of the output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GYMLAB_RUNS", raising=False)

    def call(*arguments):
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return SimpleNamespace(code=code, out=out, err=err, json=lambda: json.loads(out))

    return call


@pytest.fixture
def tiny():
    """Settings of a training that takes a second."""
    return TINY


@pytest.fixture
def wait_for():
    """Wait until something holds while a process lives."""

    def wait(condition, process, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.1)

    return wait


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A runs directory with one tiny finished run, called `tiny`; nobody writes to it."""
    runs = tmp_path_factory.mktemp("trained") / "runs"
    assert (
        main(["train", "CartPole-v1:ppo", *TINY, "--quiet", "--runs-dir", str(runs), "--run-id", "tiny", "--seed", "3"])
        == 0
    )
    return runs
