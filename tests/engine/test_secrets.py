"""A secret of a run's config: in no file of the run, in no message; not used where it is blanked, and given again on resume."""

import json
import subprocess
import sys

import pytest

import gymlab
from gymlab.engine.agent import load
from gymlab.engine.run import Run
from gymlab.errors import ConfigError
from gymlab.metrics.redact import REDACTED, forget_secrets

SECRET = "Tr0ub4dor&3 it's"
ENVIRONMENT = """
import os
import gymnasium as gym
import numpy as np

class Guarded(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, password, url="", words=(), fails_after=None):
        if password != os.environ["GUARDED"]:
            raise ValueError(f"wrong password {password!r} for {url}")
        self.password, self.fails_after, self.total = password, fails_after, 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.total += 1
        if self.fails_after is not None and self.total > self.fails_after:
            raise RuntimeError(f"the server at x did not like {self.password} today")
        return np.full(2, 0.5, np.float32), 1.0, self.steps == 10, False, {}

gym.register("Guarded-v0", Guarded)
"""
SETTINGS = [
    *("max_env_steps=128", "n_envs=2", "n_steps=32", "batch_size=64", "n_epochs=1", "hidden_dims=[8]", "video=false"),
    *("eval_freq_epochs=1", "eval_episodes=2", "vectorization_mode=sync", "early_stop_on_eval_threshold=false"),
]


@pytest.fixture(autouse=True)
def guarded(tmp_path, monkeypatch):
    """An environment that wants a password, in a directory of its own."""
    (tmp_path / "guarded_env.py").write_text(ENVIRONMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GUARDED", SECRET)
    monkeypatch.delitem(sys.modules, "guarded_env", raising=False)
    yield
    forget_secrets()


def train(*words, secret=SECRET):
    """A run of the guarded environment, called `guarded`."""
    return gymlab.train(
        "Guarded-v0",
        algo="ppo",
        plugins=["guarded_env"],
        runs_dir="runs",
        run_id="guarded",
        overrides=[*SETTINGS, f"env_kwargs.password={json.dumps(secret)}", "quiet=true", *words],
        command=f"gymlab train Guarded-v0 env_kwargs.password='{secret}'",
    )


def resume(*words):
    return gymlab.resume("guarded", runs_dir="runs", plugins=["guarded_env"], overrides=["max_env_steps=256", *words])


def files_with(run, secret):
    return [str(path) for path in run.dir.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_a_blanked_secret_is_no_value(tmp_path):
    run = train()
    assert run.config_data["env_kwargs"]["password"] == REDACTED
    before = (run.dir / "run.json").read_bytes()
    with pytest.raises(ConfigError, match=r"(?s)env_kwargs\.password.*--resume RUN env_kwargs\.password=") as caught:
        resume()
    assert "wrong password" not in str(caught.value)
    assert (run.dir / "run.json").read_bytes() == before
    agent = load("guarded", runs_dir="runs")
    for use in (lambda: agent.evaluate(1), lambda: agent.make_env(1, render_mode="rgb_array")):
        with pytest.raises(ConfigError, match=r"(?s)env_kwargs\.password.*--env-kwargs password="):
            use()
    with pytest.raises(ConfigError, match=r"env_kwargs\.password"):
        gymlab.train(str(run.config_path), plugins=["guarded_env"], runs_dir="runs", run_id="again")
    assert not (tmp_path / "runs" / "again").exists()


def test_it_is_given_again_on_resume_and_nothing_else_changes(tmp_path):
    run = train()
    with pytest.raises(ConfigError, match="env_kwargs cannot change") as caught:
        resume(f"env_kwargs.password={json.dumps(SECRET)}", "env_kwargs.url=elsewhere")
    assert SECRET not in str(caught.value)
    resumed = resume(f"env_kwargs.password={json.dumps(SECRET)}")
    assert resumed.status == "finished"
    assert resumed.record["counters"]["env_steps"] == 256
    assert resumed.config_data["env_kwargs"] == {"password": REDACTED}
    assert json.loads((run.dir / "config.json").read_text())["env_kwargs"] == {"password": REDACTED}
    assert "env_kwargs.password was given again" in (run.dir / "run.log").read_text()
    assert files_with(run, SECRET) == []


def test_a_part_of_a_value_may_only_be_completed():
    train('env_kwargs.url="https://me:geheim77@host.org/path"')
    words = [f"env_kwargs.password={json.dumps(SECRET)}"]
    with pytest.raises(ConfigError, match=r"env_kwargs\.url"):
        resume(*words)
    with pytest.raises(ConfigError, match="env_kwargs cannot change") as caught:
        resume(*words, "env_kwargs.url=https://me:geheim77@evil.org/path")
    assert "geheim77" not in str(caught.value)
    assert resume(*words, "env_kwargs.url=https://me:geheim77@host.org/path").status == "finished"


def test_the_command_that_repeats_a_run_asks_for_what_it_does_not_store():
    run = train('env_kwargs.url="https://me:geheim77@host.org/path"', "env_kwargs.words=[{token: geheim77}, plain]")
    command = run.record["repeat"]
    asked = "--env-kwargs password=... --env-kwargs url=... --env-kwargs words=..."
    assert command == f"gymlab repeat guarded --plugin guarded_env {asked}"
    assert command in (run.dir / "report.md").read_text()
    with pytest.raises(ConfigError, match=r"gymlab eval \(play, record, inspect, repeat, compare --normalise\) RUN"):
        gymlab.repeat("guarded", runs_dir="runs", plugins=["guarded_env"])
    again = {"password": SECRET, "url": "https://me:geheim77@host.org/path", "words": [{"token": "geheim77"}, "plain"]}
    assert gymlab.repeat("guarded", runs_dir="runs", plugins=["guarded_env"], env_kwargs=again).equal


def test_a_secret_in_a_list_is_given_with_the_whole_of_it():
    words = [f"env_kwargs.password={json.dumps(SECRET)}", "env_kwargs.words=[{token: geheim77}, plain]"]
    train(words[1])
    with pytest.raises(ConfigError, match=r"(?s)env_kwargs\.words\.0\.token.*env_kwargs\.words=\.\.\."):
        resume(words[0])
    assert resume(*words).status == "finished"


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("restarts", [0, 2])
def test_a_crash_tells_no_secret(tmp_path, capfd, mode, restarts):
    with pytest.raises(Exception, match="did not like"):
        train("env_kwargs.fails_after=5", f"env_restarts={restarts}", f"vectorization_mode={mode}", "quiet=false")
    run = Run(tmp_path / "runs" / "guarded")
    assert run.status == "crashed"
    assert f"did not like {REDACTED}" in run.record["reason"]
    assert run.record["command"] == f"gymlab train Guarded-v0 env_kwargs.password='{REDACTED}'"
    assert f"did not like {REDACTED}" in (run.dir / "run.log").read_text()
    assert files_with(run, SECRET) == []
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err


def test_failures_that_a_run_survives_are_told_without_the_secret(tmp_path, capfd):
    run = train("env_kwargs.fails_after=40", "env_restarts=50", "quiet=false")
    assert run.status == "finished"
    assert "did not like" in (run.dir / "run.log").read_text()
    assert files_with(run, SECRET) == []
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err


@pytest.mark.parametrize("options", [[], ["--json"], ["--seeds", "0-1"]])
def test_the_program_prints_no_secret(tmp_path, options):
    """Errors of an environment are printed with a traceback, by the interpreter and by the table of several seeds."""
    words = ["Guarded-v0", "--algo", "ppo", "--plugin", "guarded_env", *SETTINGS, *options]
    kwargs = ["--env-kwargs", f"password={json.dumps(SECRET)}", "--env-kwargs", "fails_after=5", "env_restarts=0"]
    done = subprocess.run(
        [sys.executable, "-m", "gymlab", "train", *words, *kwargs], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    told = done.stdout + done.stderr
    assert f"did not like {REDACTED}" in told
    assert SECRET not in told
    for run in (tmp_path / "runs").iterdir():
        assert files_with(Run(run), SECRET) == []


def test_a_dataset_tells_no_secret(tmp_path, monkeypatch):
    """An agent that plays with the secret given again writes a dataset without it."""
    pytest.importorskip("minari")
    from gymlab.engine.demonstrations import record

    train()
    agent = load("guarded", runs_dir="runs")
    agent.config = agent.config.model_copy(update={"env_kwargs": {"password": SECRET}})
    made = record(agent, tmp_path / "demos", "guarded/x-v0", episodes=1, seed=0, deterministic=True)
    assert made.episodes == 1
    assert [path for path in made.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []
