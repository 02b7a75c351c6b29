"""SIGTERM at any moment of a run: saved within ten seconds, and gone on with as if it had never come."""

import importlib
import os
import pkgutil
import signal
import time

import pytest

import gymlab
from gymlab.components.observation import ObservationEncoder
from gymlab.engine import callbacks, orchestrator, train
from gymlab.engine.callbacks.base import Callback
from gymlab.engine.checkpoint import CheckpointManager
from gymlab.envs.families.cartpole import CartPoleVector
from gymlab.workflows.ppo import PPO

SECONDS_TO_SAVE = 10
SETTINGS = {
    "n_envs": 2,
    "n_steps": 32,
    "batch_size": 64,
    "n_epochs": 2,
    "max_env_steps": 512,
    "policy_lr": 0.001,
    "clip_range": "lin_0.2",
    "quiet": True,
    "eval_freq_epochs": 2,
    "eval_episodes": 4,
    "eval_max_episode_steps": 20,
    "eval_recording_freq_epochs": 4,
    "video_max_seconds": 0.2,
    "keep_episodes": 1,
    "early_stop_on_eval_threshold": False,
    "seed": 5,
}
UNFILMED = {name: value for name, value in SETTINGS.items() if name != "video_max_seconds"} | {
    "video": False,
    "eval_recording_freq_epochs": None,
}
PHASES = {
    "training": {
        "phases": [
            {"name": "first", "type": "online", "hooks": ["collect", "update_controller"], "buffer": "rollout", "duration_steps": 256},
            {"name": "look", "type": "eval_only"},
            {"name": "rest", "type": "online", "hooks": ["collect", "update_controller"], "buffer": "rollout"},
        ]
    }
}  # fmt: skip


def callback_moments():
    """Every moment that a callback of the engine takes part in."""
    for module in pkgutil.iter_modules(callbacks.__path__):
        for kind in vars(importlib.import_module(f"{callbacks.__name__}.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, Callback) and kind is not Callback:
                yield from ((kind, name) for name in vars(kind) if name.startswith("on_"))


MOMENTS = {
    **{f"{kind.__name__}.{name}": (kind, name) for kind, name in callback_moments()},
    "collect": (PPO, "collect"),
    "step": (CartPoleVector, "step"),
    "update": (PPO, "update_controller"),
    "save": (CheckpointManager, "save"),
    "write": (CheckpointManager, "_write"),
    "evaluation": (orchestrator, "evaluate"),
    "before the loop": (train, "_open_monitor"),
}
TOO_LATE = "KeptEpisodes.on_stop"
"""The last evaluation is over by then: nothing is left that a signal could cut short."""
ONCE = ("on_start", "on_stop", "on_phase_end", "_open_monitor")
"""Functions that a run calls but once."""


def columns(run):
    return {name: values for name, values in run.metrics.items() if not name.startswith("sys/")}


@pytest.fixture
def sent(monkeypatch):
    """Sends SIGTERM to this process at the second call of a function (the first, where there is but one), then calls it."""
    times = []

    def at(owner, name):
        function, calls = getattr(owner, name), []

        def terminated(*arguments, **keywords):
            calls.append(time.monotonic())
            if len(calls) == (1 if name in ONCE else 2):
                times.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGTERM)
            return function(*arguments, **keywords)

        monkeypatch.setattr(owner, name, terminated)
        return times

    return at


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path_factory.mktemp("whole"), **SETTINGS, **PHASES)


@pytest.mark.parametrize("moment", MOMENTS)
def test_sigterm_is_saved_and_changes_nothing(tmp_path, sent, monkeypatch, whole, moment):
    times = sent(*MOMENTS[moment])
    run = gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="cut", **SETTINGS, **PHASES)
    assert len(times) == 1, "the moment never came"
    assert time.monotonic() - times[0] < SECONDS_TO_SAVE
    assert run.status == ("finished" if moment == TOO_LATE else "stopped")
    assert (run.record["reason"].startswith("stopped by SIGTERM")) == (run.status == "stopped")
    assert (run.dir / "report.md").is_file()
    monkeypatch.undo()
    resumed = gymlab.resume("cut", runs_dir=tmp_path)
    assert resumed.status == "finished"
    assert columns(resumed) == columns(whole)
    first, second = whole.checkpoints.find().read_model(), resumed.checkpoints.find().read_model()
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize("where", ["epoch", "phase"])
def test_an_evaluation_that_is_cut_short_is_played_again(tmp_path, monkeypatch, where):
    """The signal comes while episodes are played, not between two, at an epoch's end or in a phase of evaluation."""
    settings = dict(UNFILMED)
    settings |= {"eval_freq_epochs": None, **PHASES} if where == "phase" else {}
    whole = gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="whole", **settings)
    acted, act = [], PPO.act

    def terminated(self, *arguments, **keywords):
        acted.append(1)
        if len(acted) == 8:
            os.kill(os.getpid(), signal.SIGTERM)
        return act(self, *arguments, **keywords)

    monkeypatch.setattr(PPO, "act", terminated)
    run = gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="cut", **settings)
    assert run.status == "stopped"
    assert len(acted) == 8
    assert not any(name.startswith("val/") for name in run.metrics)
    monkeypatch.undo()
    resumed = gymlab.resume("cut", runs_dir=tmp_path)
    assert any(name.startswith("val/") for name in resumed.metrics)
    assert columns(resumed) == columns(whole)


@pytest.mark.parametrize(
    ("experiment", "fields"),
    [
        ("CartPole-v1:ppo", {"normalize_obs": "rolling", "normalize_reward": True}),
        ("CartPole-v1:ppo", {"vectorization_mode": "sync", "max_episode_steps": 9}),
        (
            "CartPole-v1:ppo",
            {
                "vectorization_mode": "async",
                "env_workers": 2,
                "double_buffer": True,
                "n_envs": 4,
                "max_episode_steps": 9,
                "normalize_obs": "rolling",
                "normalize_reward": True,
            },
        ),
        ("CartPole-v1:reinforce", {}),
        ("CartPole-v1:reinforce", {"unfinished": "bootstrap"}),
        ("Taxi-v4:ppo", {"hidden_dims": [8]}),
    ],
)
def test_a_rollout_that_is_cut_short_goes_on(tmp_path, monkeypatch, experiment, fields):
    """Nobody waits for the end of a long rollout: the rows so far are saved, and the next sitting adds the others."""
    settings = {**UNFILMED, "eval_freq_epochs": None, **fields}
    if "reinforce" in experiment:
        del settings["clip_range"]
    whole = gymlab.train(experiment, runs_dir=tmp_path, run_id="whole", **settings)
    collected, encode = [], ObservationEncoder.encode

    def terminated(self, *arguments, update, **keywords):
        collected.append(update)
        if collected.count(True) == 50:
            os.kill(os.getpid(), signal.SIGTERM)
        return encode(self, *arguments, update=update, **keywords)

    monkeypatch.setattr(ObservationEncoder, "encode", terminated)
    run = gymlab.train(experiment, runs_dir=tmp_path, run_id="cut", **settings)
    assert run.status == "stopped"
    assert collected.count(True) == 50
    open_rollout = run.checkpoints.find().read_part("workflow")["collector"]["open"]
    assert 0 < open_rollout["t"] < 50
    monkeypatch.undo()
    resumed = gymlab.resume("cut", runs_dir=tmp_path)
    assert columns(resumed) == columns(whole)
    first, second = whole.checkpoints.find().read_model(), resumed.checkpoints.find().read_model()
    assert all((first[name] == second[name]).all() for name in first)
