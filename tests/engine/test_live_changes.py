"""A run takes changes of config.json at the start of an epoch, refuses what cannot change, and makes changes again when it goes back."""

import json
import shutil
import subprocess
import sys
import time

import pytest
import torch

import gymlab
from gymlab.config import from_dict
from gymlab.engine import train as training
from gymlab.engine.agent import Agent
from gymlab.engine.callbacks import live_changes
from gymlab.engine.callbacks.base import Callback
from gymlab.engine.changes import ChangeLog
from gymlab.engine.run import Run
from gymlab.engine.workflow import find_workflow
from gymlab.errors import ConfigError

SMALL = {
    "n_envs": 8,
    "n_steps": 16,
    "batch_size": 64,
    "n_epochs": 2,
    "policy_lr": 3e-4,
    "clip_range": 0.2,
    "quiet": True,
    "video": False,
    "eval_episodes": 2,
    "eval_max_episode_steps": 20,
    "eval_freq_epochs": 2,
    "early_stop_on_eval_threshold": False,
    "keep_checkpoints": 9,
    "seed": 7,
    "max_env_steps": 8 * 128,
}


class AtEpoch(Callback):
    """Does something with the run's loop once an epoch has ended."""

    def __init__(self, actions):
        self.actions = actions

    def on_row(self, loop, row):
        action = self.actions.get(loop.counters.epoch)
        if action is not None:
            action(loop)


class StopInside(Callback):
    """Asks for a stop within an epoch: the run saves after the action that is going on."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_start(self, loop):
        if loop.counters.epoch == self.epoch:
            loop.stop_signal.name = "SIGTERM"


@pytest.fixture
def with_callback(monkeypatch):
    """Trainings of the test look at the file in every epoch, and have a further callback."""
    monkeypatch.setattr(live_changes, "LOOK_SECONDS", 0.0)
    original = training._callbacks

    def use(*callbacks):
        monkeypatch.setattr(training, "_callbacks", lambda *given: [*original(*given), *callbacks])

    use()
    return use


def edit(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def train(tmp_path, experiment="CartPole-v1:ppo", run_id="one", **fields):
    return gymlab.train(experiment, runs_dir=tmp_path, run_id=run_id, **SMALL | fields)


def columns(run):
    return {name: values for name, values in run.metrics.items() if not name.startswith("sys/")}


def assert_equal(first, second):
    assert columns(first) == columns(second)
    model, other = (run.checkpoints.find().read_model() for run in (first, second))
    assert all(torch.equal(model[name], other[name]) for name in model)


def notices(run):
    text = (run.dir / "report.md").read_text()
    return text.partition("## Notices")[2].partition("##")[0]


def test_an_edit_counts_from_the_next_epoch_on(tmp_path, with_callback):
    path = tmp_path / "one" / "config.json"
    with_callback(AtEpoch({3: lambda loop: edit(path, policy_lr=1e-4)}))
    run = train(tmp_path)
    assert run.metrics["train/policy_lr"] == [None] * 3 + [1e-4] * 5
    said = "policy_lr: 0.0003 -> 0.0001 at 384 env steps (config.json)"
    assert said in notices(run)
    assert f"notice: {said}" in (run.dir / "run.log").read_text()
    (change,) = ChangeLog(run.dir).read()
    assert (change.name, change.before, change.to, change.epoch, change.env_steps) == ("policy_lr", 3e-4, 1e-4, 3, 384)


def test_a_run_that_nobody_edits_has_no_log_and_no_columns(tmp_path, with_callback):
    run = train(tmp_path, max_env_steps=256)
    assert "train/policy_lr" not in run.metrics
    assert not (run.dir / "changes.jsonl").exists()
    assert "Notices" not in (run.dir / "report.md").read_text()


def test_the_learning_rate_is_the_one_that_learns(tmp_path, with_callback):
    path = tmp_path / "one" / "config.json"
    with_callback(AtEpoch({2: lambda loop: edit(path, policy_lr=0.0)}))
    run = train(tmp_path, optimizer="sgd")
    after, last = (run.checkpoints.find(f"epoch={epoch}").read_model() for epoch in (2, 8))
    assert all(torch.equal(after[name], last[name]) for name in after)


@pytest.mark.parametrize("experiment", ["CartPole-v1:reinforce", "FrozenLake-v1:q_learning"])
def test_other_algorithms_read_their_hyperparameters_too(tmp_path, with_callback, experiment):
    fields = {key: value for key, value in SMALL.items() if key not in ("batch_size", "n_epochs", "clip_range")}
    path = tmp_path / "one" / "config.json"
    with_callback(AtEpoch({2: lambda loop: edit(path, policy_lr=0.0)}))
    if "reinforce" in experiment:
        fields |= {"batch_size": 64, "optimizer": "sgd", "policy_targets": "returns", "max_env_steps": 4096}
    run = gymlab.train(experiment, runs_dir=tmp_path, run_id="one", **fields)
    after, last = run.checkpoints.find("epoch=2").read_model(), run.checkpoints.find().read_model()
    changing = [name for name in after if "visit" not in name]
    assert changing
    assert all(torch.equal(after[name], last[name]) for name in changing)


@pytest.mark.parametrize("experiment", ["CartPole-v1:ppo", "CartPole-v1:reinforce"])
def test_the_reward_is_normalised_with_the_discount_of_now(tmp_path, with_callback, experiment):
    path, found = tmp_path / "one" / "config.json", []

    def look(loop):
        found.append(loop.workflow.collector.reward_normalizer.gamma)

    with_callback(AtEpoch({1: lambda loop: edit(path, gamma=0.5), 2: look}))
    fields = SMALL if experiment.endswith("ppo") else {k: v for k, v in SMALL.items() if k != "clip_range"}
    gymlab.train(experiment, runs_dir=tmp_path, run_id="one", **fields | {"normalize_reward": True, "max_epochs": 2})
    assert found == [0.5]


def test_what_cannot_change_is_told_once_and_training_goes_on(tmp_path, with_callback):
    path = tmp_path / "one" / "config.json"
    bad = {"n_envs": 99, "max_env_steps": 5, "polcy_lr": 1, "policy_lr": -1, "ent_coef": 0.02}
    with_callback(AtEpoch({2: lambda loop: edit(path, **bad), 4: lambda loop: edit(path, ent_coef=0.03)}))
    run = train(tmp_path)
    log = (run.dir / "run.log").read_text()
    assert log.count("`n_envs` cannot change while a run trains. It stays 8.") == 1
    assert log.count("gymlab train --resume one max_env_steps=...") == 1
    assert log.count("`polcy_lr` is no setting of this run. Did you mean 'policy_lr'?") == 1
    assert log.count("`policy_lr`: must not be negative. It stays as it was.") == 1
    assert run.metrics["train/cnt/env_steps"][-1] == 1024
    assert run.metrics["train/ent_coef"] == [None, None, 0.02, 0.02, 0.03, 0.03, 0.03, 0.03]
    assert "train/policy_lr" not in run.metrics


def test_a_file_that_is_half_written_is_told_once_and_read_when_it_is_whole(tmp_path, with_callback):
    path = tmp_path / "one" / "config.json"
    half = []

    def tear(loop):
        half.append(path.read_text())
        path.write_text(half[0][:100])

    def mend(loop):
        path.write_text(json.dumps(json.loads(half[0]) | {"policy_lr": 1e-4}))

    with_callback(AtEpoch({2: tear, 4: mend}))
    run = train(tmp_path)
    assert (run.dir / "run.log").read_text().count("config.json is not valid JSON") == 1
    assert run.metrics["train/policy_lr"] == [None] * 4 + [1e-4] * 4


def test_a_file_that_is_gone_changes_nothing(tmp_path, with_callback):
    path = tmp_path / "one" / "config.json"
    with_callback(AtEpoch({2: lambda loop: path.unlink()}))
    run = train(tmp_path)
    assert run.status == "finished"


def test_the_file_is_looked_at_seldom(tmp_path, with_callback, monkeypatch):
    monkeypatch.setattr(live_changes, "LOOK_SECONDS", 600.0)
    looks = []
    monkeypatch.setattr(live_changes, "_identity", lambda path: looks.append(path))
    train(tmp_path)
    assert len(looks) == 1


def change_much(path):
    """A number becomes a schedule, a limit ends, a discount that normalisation uses changes."""
    return lambda loop: edit(path, policy_lr="lin_0.001", target_kl=None, gamma=0.9)


def test_going_back_before_or_after_a_change_gives_the_same_run(tmp_path, with_callback):
    path = tmp_path / "whole" / "config.json"
    with_callback(AtEpoch({3: change_much(path), 5: lambda loop: edit(path, ent_coef=0.02)}))
    whole = train(tmp_path, run_id="whole", target_kl=0.01, normalize_reward=True)
    assert whole.metrics["train/policy_lr"][3:] == pytest.approx([1e-3 * (1 - done / 8) for done in range(3, 8)])
    assert whole.metrics["train/opt/ppo/stopped_early"][3:] == [None] * 5
    with_callback()
    for epoch in (2, 4, 6):
        shutil.copytree(whole.dir, tmp_path / f"from-{epoch}", symlinks=True)
        resumed = gymlab.resume(f"from-{epoch}", epoch=epoch, runs_dir=tmp_path)
        assert_equal(whole, resumed)
        assert ChangeLog(resumed.dir).read() == ChangeLog(whole.dir).read()
        assert ("policy_lr: 0.0003 -> linear 0.001 to 0 at 384 env steps (config.json, again)" in notices(resumed)) == (
            epoch < 3
        )


def test_a_stop_inside_the_epoch_of_a_change(tmp_path, with_callback):
    path = tmp_path / "whole" / "config.json"
    with_callback(AtEpoch({3: change_much(path)}))
    whole = train(tmp_path, run_id="whole")
    path = tmp_path / "cut" / "config.json"
    with_callback(AtEpoch({3: change_much(path)}), StopInside(3))
    cut = train(tmp_path, run_id="cut")
    assert cut.checkpoints.find().path.name == "epoch=0003-step=384.ckpt"
    with_callback()
    assert_equal(whole, gymlab.resume("cut", runs_dir=tmp_path))


def test_a_wish_of_a_run_that_does_not_train_waits_for_its_resumption(tmp_path, with_callback):
    run = train(tmp_path, max_env_steps=512)
    (change,) = gymlab.set_hyperparameters("one", runs_dir=tmp_path, policy_lr="lin_1e-3")
    assert (change.before, change.to["start"]) == (3e-4, 1e-3)
    waiting = {tunable.name: tunable for tunable in gymlab.get_hyperparameters("one", runs_dir=tmp_path)}["policy_lr"]
    assert (waiting.value, waiting.wanted) == (3e-4, change.to)
    resumed = gymlab.resume("one", runs_dir=tmp_path, max_env_steps=1024)
    assert resumed.metrics["train/policy_lr"] == [None] * 4 + [5e-4, 3.75e-4, 2.5e-4, 1.25e-4]
    assert "(gymlab set)" in notices(resumed)
    assert json.loads((run.dir / "config.json").read_text())["max_env_steps"] == 1024
    assert Run(run.dir).config_data["policy_lr"] == 3e-4


def test_hyperparameters_given_on_resume_change_in_its_first_epoch(tmp_path, with_callback):
    train(tmp_path)
    resumed = gymlab.resume("one", epoch=4, runs_dir=tmp_path, overrides=["learning_rate=1e-4"], ent_coef=0.0)
    assert resumed.metrics["train/policy_lr"] == [None] * 4 + [1e-4] * 4
    assert "policy_lr: 0.0003 -> 0.0001 at 512 env steps (resume)" in notices(resumed)
    assert "train/ent_coef" not in resumed.metrics
    with pytest.raises(ConfigError, match="n_envs cannot change when a run goes on"):
        gymlab.resume("one", runs_dir=tmp_path, n_envs=4)


def test_what_is_given_on_resume_takes_the_place_of_later_changes(tmp_path, with_callback):
    path = tmp_path / "one" / "config.json"
    with_callback(AtEpoch({6: lambda loop: edit(path, policy_lr=1e-4)}))
    train(tmp_path)
    with_callback()
    resumed = gymlab.resume("one", epoch=4, runs_dir=tmp_path, policy_lr=3e-4)
    assert resumed.metrics["train/policy_lr"] == [None] * 4 + [3e-4] * 4
    resumed = gymlab.resume("one", epoch=2, runs_dir=tmp_path, policy_lr=3e-4)
    assert resumed.metrics["train/policy_lr"] == [None] * 2 + [3e-4] * 6


def test_an_edited_file_is_no_obstacle_to_the_agent(tmp_path, with_callback):
    run = train(tmp_path, max_env_steps=256)
    edit(run.dir / "config.json", policy_lr="lin_1", n_envs=3, nonsense=1)
    run = Run(run.dir)
    assert Agent.from_run(run).config.n_envs == 8
    assert from_dict(run.config_data, lambda algo: find_workflow(algo).Config).n_envs == 8


def test_another_process_changes_a_run(tmp_path):
    """Both ways at once, from outside: a training in a process of its own, `gymlab set` in a second."""
    settings = [f"{key}={json.dumps(value)}" for key, value in SMALL.items() if key != "max_env_steps"]
    base = [sys.executable, "-m", "gymlab"]
    place = ["--runs-dir", str(tmp_path)]
    command = [*base, "train", "CartPole-v1:ppo", *settings, "max_env_steps=3e7", "--run-id", "one", *place]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        log, deadline = tmp_path / "one" / "run.log", time.monotonic() + 60

        def wait_for(text):
            while not (log.exists() and text in log.read_text()):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)

        wait_for("checkpoint epoch=")
        done = subprocess.run(
            [*base, "set", "one", "policy_lr=1e-5", *place], capture_output=True, text=True, check=True
        )
        assert done.stdout == "policy_lr: 0.0003 -> 1e-05\none takes it from its next epoch on\n"
        wait_for("notice: policy_lr: 0.0003 -> 1e-05 at")
        edit(tmp_path / "one" / "config.json", ent_coef=0.5)
        wait_for("notice: ent_coef: 0 -> 0.5 at")
        # Told at the beginning of an epoch, whose row comes at its end.
        while Run(tmp_path / "one").metrics.get("train/ent_coef", [None])[-1] != 0.5:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait(timeout=30)
    run = Run(tmp_path / "one")
    assert run.status == "stopped"
    assert run.metrics["train/policy_lr"][-1] == 1e-5
    assert run.metrics["train/ent_coef"][-1] == 0.5
