"""A NaN anywhere, a full disk, a directory that goes away: each stops the run by name and loses nothing."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

import gymlab
from gymlab.components.analytic import AnalyticGradient
from gymlab.components.autograd import AutogradGradient
from gymlab.engine.callbacks import live_changes, report
from gymlab.engine.callbacks.report import Report
from gymlab.engine.faults import disk_watched, write_evidence
from gymlab.engine.files import read_json
from gymlab.engine.run import Run, find_run
from gymlab.engine.workflow import Counters
from gymlab.errors import GymlabError, NonFiniteError, RunGone
from gymlab.metrics.redact import forget_secrets, remember_secrets

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
    assert str(error).endswith("the last checkpoint is as it was.")
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


def in_update(monkeypatch, number, do, kind=AnalyticGradient):
    """Call `do(gradient, statistics)` in the first minibatch of an update; each has two. The list grows with each minibatch."""
    compute, calls = kind.__call__, []

    def late(self, batch, coefficients):
        statistics = compute(self, batch, coefficients)
        calls.append(batch)
        if len(calls) == (number - 1) * 2 + 1:
            do(self, statistics)
        return statistics

    monkeypatch.setattr(kind, "__call__", late)
    return calls


def break_gradient(monkeypatch, kind, what, number=WHERE):
    """Make a loss or a gradient NaN in an update."""

    def broken(self, statistics):
        if what == "loss":
            statistics[0] = float("nan")
        else:
            gradient = self.mlp.bias_gradients[0] if kind is AnalyticGradient else self._flat.gradient
            gradient[0] = float("nan")

    in_update(monkeypatch, number, broken, kind)


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


def test_a_nan_in_the_first_update_leaves_no_checkpoint_and_says_so(tmp_path, monkeypatch):
    break_gradient(monkeypatch, AnalyticGradient, "loss", 1)
    with pytest.raises(NonFiniteError, match=r"it had written no checkpoint yet\.$"):
        gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, **{**SETTINGS, "n_epochs": 1})
    run, _ = find_run("@last", tmp_path)
    assert run.checkpoints.all() == []
    assert (run.dir / "non_finite" / "batch.safetensors").is_file()


def test_secrets_are_blanked_in_all_that_is_written_of_a_nan(tmp_path, request):
    secret = "Tr0ub4dor&3"
    request.addfinalizer(forget_secrets)
    remember_secrets({"password": secret})
    told = {
        "note": f"logged in with {secret}",
        secret: 1.0,
        "list": [secret, {"deep": (secret,)}],
        "array": np.array([secret, "plain"]),
        "scalar": np.str_(secret),
        "bytes": secret.encode(),
        "object": SimpleNamespace(password=secret),
    }
    error = NonFiniteError(f"nan beside {secret}", tensor="reward", data={"infos": told, "numbers": np.ones(2)})
    write_evidence(error, Run(tmp_path), Counters())
    written = b"".join(path.read_bytes() for path in (tmp_path / "non_finite").iterdir())
    assert secret.encode() not in written
    infos = read_json(tmp_path / "non_finite" / "where.json")["data"]["infos"]
    assert infos["note"] == "logged in with [redacted]"
    assert infos["[redacted]"] == 1.0
    assert infos["array"] == ["[redacted]", "plain"]
    assert load_file(tmp_path / "non_finite" / "batch.safetensors")["numbers"].tolist() == [1, 1]


SHORT = {**SETTINGS, "n_epochs": 1, "max_env_steps": 1024}
"""Eight epochs of an update each."""
AWAY = {"deleted": lambda run, moved: shutil.rmtree(run), "moved": lambda run, moved: run.rename(moved)}


@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("noticed", ["at a checkpoint", "when an epoch begins"])
def test_a_directory_that_goes_away_stops_the_run(tmp_path, monkeypatch, away, noticed):
    run, moved, saves = Run(tmp_path / "one"), tmp_path / "moved", noticed == "at a checkpoint"
    monkeypatch.setattr(live_changes, "LOOK_SECONDS", 60.0 if saves else 0.0)
    calls = in_update(monkeypatch, WHERE, lambda *_: AWAY[away](run.dir, moved))
    with pytest.raises(RunGone, match=r"Run one stopped: its directory .*one is gone, deleted or moved away"):
        gymlab.train(
            "CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", **{**SHORT, "eval_freq_epochs": 1 if saves else None}
        )
    assert len(calls) == WHERE * 2
    assert not run.dir.exists()
    if away == "moved" and saves:
        resumed = gymlab.resume(str(moved))
        assert resumed.record["resumed"][-1]["from"] == f"epoch={WHERE - 1:04d}.ckpt"
        assert resumed.status == "finished"


def test_what_ended_a_run_is_told_though_its_directory_went_away(tmp_path, monkeypatch):
    def break_and_delete(_, statistics):
        statistics[0] = float("nan")
        shutil.rmtree(tmp_path / "one")

    in_update(monkeypatch, WHERE, break_and_delete)
    with pytest.raises(NonFiniteError, match=r"loss/policy is nan .*\nThe batch could not be written to .*non_finite"):
        gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", **SHORT)


def emptied(run):
    """What is seen in the middle of `rm -r`: the directory is the last to go."""
    for path in run.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


INSTANTS = [
    *(f"checkpoint.{name}" for name in ("refuse_if_gone", "_delete", "save_file", "write_json", "sync", "os.rename")),
    *(f"checkpoint.{name}" for name in ("relative_link", "os.readlink", "shutil.rmtree")),
    *(f"checkpoint.CheckpointManager.{name}" for name in ("recover", "_write", "_put_in_place", "_prune")),
    *("orchestrator.snapshot.take", "chunk_store.ChunkStore.collect", "callbacks.alerts.Alerts.on_metrics"),
    *("callbacks.episodes.write_episode", "episodes.replace_file", "callbacks.live_changes._identity"),
]
"""Calls of an epoch and of its save."""


@pytest.mark.parametrize("away", [shutil.rmtree, emptied])
@pytest.mark.parametrize("instant", INSTANTS)
def test_a_directory_that_goes_away_at_any_instant_does_not_come_back(tmp_path, monkeypatch, instant, away):
    run = Run(tmp_path / "one")
    owner, name = resolve_name(f"gymlab.engine.{instant.rpartition('.')[0]}"), instant.rpartition(".")[2]
    called = getattr(owner, name)

    def interrupted(*arguments, **named):
        if not went and len(run.checkpoints.all()) == 2:
            went.append(instant)
            away(run.dir)
        return called(*arguments, **named)

    went = []
    monkeypatch.setattr(live_changes, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(RunGone, match=r"one (is gone, deleted or moved away|was emptied or replaced) while it trained"):
        gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", keep_episodes=1, **SHORT)
    assert went
    assert run.dir.exists() == (away is emptied)
    assert not (run.dir / "run.json").exists()
    assert not (run.dir / "report.md").exists()


def test_what_ends_a_run_whose_directory_went_away_in_its_last_save(tmp_path, monkeypatch):
    really = Report.on_stop

    def late(self, loop):
        shutil.rmtree(tmp_path / "one")
        really(self, loop)

    monkeypatch.setattr(Report, "on_stop", late)
    with pytest.raises(RunGone):
        gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", **SHORT)
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("late", [False, True])
def test_metrics_that_are_deleted_do_not_make_a_crash_of_a_run(tmp_path, monkeypatch, caplog, late):
    metrics = tmp_path / "one" / "metrics.csv"
    if late:
        really = report.write_report
        monkeypatch.setattr(report, "write_report", lambda *given: (metrics.unlink(), really(*given)))
    else:
        in_update(monkeypatch, WHERE, lambda *_: metrics.unlink())
    run = gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", **SHORT)
    assert run.status == "finished"
    if late:
        assert "No report: Run one has no report" in caplog.text
    else:
        assert caplog.text.count("metrics.csv was deleted or replaced") == 1
        assert len(run.metrics["train/cnt/epoch"]) == 8
        assert (run.dir / "report.md").is_file()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, r"cannot write to .*/one: No space left.*no checkpoint to go on from. Make room.*train again"),
        (errno.EFBIG, r"cannot write to .*/one: File too large.*Raise the limit on the size of files"),
        (errno.EACCES, r"cannot write to .*/one: Permission denied.*Make room or allow writing"),
        (errno.ENOENT, r"cannot write to .*/one/lost: No such file.*nothing deletes files of a run"),
    ],
)
def test_a_run_that_cannot_be_written_says_what_to_do(tmp_path, number, words):
    def fail(path):
        with disk_watched(Run(tmp_path / "one")):
            raise OSError(number, os.strerror(number), str(path))

    (tmp_path / "one").mkdir()
    with pytest.raises(GymlabError, match=words):
        fail(tmp_path / "one" / "lost")
    if number in (errno.EACCES, errno.ENOENT):
        with pytest.raises(OSError, match="elsewhere"):
            fail(tmp_path / "elsewhere")


FILE_LIMIT = Path(__file__).with_name("file_limit.py")
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


def test_a_limit_on_the_size_of_files(tmp_path):
    """file_limit.py trains where metrics.csv may not grow from the third update on, raises the limit and resumes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(FILE_LIMIT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "File too large. Checkpoint epoch=0002.ckpt is whole." in done.stdout
    assert "Raise the limit on the size of files (ulimit -f), then go on: gymlab train --resume cut" in done.stdout
    assert done.stdout.endswith("finished\n")
