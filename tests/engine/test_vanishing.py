"""A run that trains deletes and rewrites its checkpoints while others read them: they get the newest, the best, or a clear word."""

import os
import shutil

import pytest
import torch

import gymlab
from gymlab.cli.main import main
from gymlab.engine.agent import load, load_best
from gymlab.engine.checkpoint import Checkpoint, CheckpointManager
from gymlab.engine.files import relative_link
from gymlab.engine.run import Run
from gymlab.errors import CheckpointError
from gymlab.inspector.loading import agents_of, read_agent
from gymlab.inspector.routes import HttpError, Inspector

SETTINGS = {
    "n_envs": 2,
    "n_steps": 16,
    "batch_size": 32,
    "n_epochs": 1,
    "max_env_steps": 96,
    "eval_freq_epochs": 1,
    "eval_episodes": 1,
    "eval_max_episode_steps": 10,
    "early_stop_on_eval_threshold": False,
    "normalize_reward": True,
    "keep_checkpoints": 9,
    "video": False,
    "quiet": True,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with three checkpoints."""
    return gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path_factory.mktemp("runs"), run_id="one", **SETTINGS)


@pytest.fixture
def run(finished, tmp_path):
    shutil.copytree(finished.dir, tmp_path / "runs" / "one", symlinks=True)
    return Run(tmp_path / "runs" / "one")


def train_on(run, monkeypatch, moment):
    """Do, when a checkpoint is first read in this way, what a training does: the next one is the best, and the one that is read goes."""
    read, done = getattr(Checkpoint, moment), []

    def late(checkpoint, *arguments, **keywords):
        if not done:
            done.append(f"epoch={run.checkpoints.all()[-1].place[0] + 1:04d}.ckpt")
            directory = run.checkpoints.directory
            shutil.copytree(checkpoint.path, directory / done[0])
            for link in ("best.ckpt", "last.ckpt"):
                relative_link(directory / link, done[0])
            shutil.rmtree(checkpoint.path)
        return read(checkpoint, *arguments, **keywords)

    monkeypatch.setattr(Checkpoint, moment, late)
    return done


def inspected(run, name="best"):
    """The agent that a page of the inspector uses."""
    with agents_of(Inspector(run.dir.parent)).use(run, name) as agent:
        return agent


LOADING = {
    "eval": lambda run: load("one", runs_dir=run.dir.parent),
    "eval of the best": lambda run: load("one/@best", runs_dir=run.dir.parent),
    "play and record": lambda run: load_best("one", runs_dir=run.dir.parent)[1],
    "Run.agent": lambda run: run.agent,
    "inspect, an agent": inspected,
    "inspect, an episode": lambda run: read_agent(Inspector(run.dir.parent), run, "best").build(),
}


@pytest.mark.parametrize("moment", ["verify", "read_state", "read_model", "read_part"])
@pytest.mark.parametrize("way", LOADING)
def test_the_next_newest_is_taken(run, monkeypatch, way, moment):
    new = train_on(run, monkeypatch, moment)
    agent = LOADING[way](run)
    assert [agent.checkpoint.name] == new
    # What is looked at later was read too.
    assert "reward_normalizer" in agent.workflow_state["collector"]


def in_between(monkeypatch, owner, name, run):
    """Do what a training does when `owner.name` is first called, whoever calls it: the next checkpoint is there and the others are gone."""
    call, done = getattr(owner, name), []

    def late(*arguments, **keywords):
        if not done:
            done.append("")
            done[0] = replace_all(run)
        return call(*arguments, **keywords)

    monkeypatch.setattr(owner, name, late)
    return done


def replace_all(run):
    """What a training that keeps one checkpoint does: its next is the best and the last, and the only one."""
    directory, checkpoints = run.checkpoints.directory, run.checkpoints.all()
    name = f"epoch={checkpoints[-1].place[0] + 1:04d}.ckpt"
    shutil.copytree(checkpoints[-1].path, directory / name)
    for link in ("best.ckpt", "last.ckpt"):
        relative_link(directory / link, name)
    for checkpoint in checkpoints:
        shutil.rmtree(checkpoint.path)
    return name


@pytest.mark.parametrize("way", ["eval", "play and record", "inspect, an agent"])
def test_weights_that_go_between_their_header_and_their_numbers(run, monkeypatch, way):
    """safetensors reads the header, and torch opens the file once more by its name for the numbers."""
    new = in_between(monkeypatch, torch.UntypedStorage, "from_file", run)
    agent = LOADING[way](run)
    if not new:
        pytest.skip("This release of safetensors opens a file once.")
    assert [agent.checkpoint.name] == new


def test_checkpoints_that_go_after_they_were_listed(run, monkeypatch):
    listed, done = os.listdir, []

    def list_and_replace(path):
        names = listed(path)
        if not done:
            done.append("")
            done[0] = replace_all(run)
        return names

    monkeypatch.setattr(os, "listdir", list_and_replace)
    assert [checkpoint.name for checkpoint in run.checkpoints.all()] == done


def test_the_best_that_has_moved_on_is_still_the_best(run, monkeypatch):
    new = in_between(monkeypatch, CheckpointManager, "all", run)
    assert run.checkpoints.best == new[0]


@pytest.mark.parametrize("command", [("eval", "--episodes", "2"), ("play", "--headless", "--episodes", "1")])
def test_the_commands_go_on(run, monkeypatch, command):
    new = train_on(run, monkeypatch, "read_model")
    assert main([command[0], "one", *command[1:], "--runs-dir", str(run.dir.parent)]) == 0
    assert new


def test_parameters_are_taken_over_from_a_run_that_trains(run, monkeypatch):
    new = train_on(run, monkeypatch, "read_model")
    later = gymlab.train("CartPole-v1:ppo", runs_dir=run.dir.parent, **SETTINGS, init_from_run="one")
    assert f"taken from one/{new[0]}" in (later.dir / "run.log").read_text()


def test_a_named_epoch_that_has_gone_is_named_with_those_there_are(run, monkeypatch):
    train_on(run, monkeypatch, "read_model")
    expected = r"No checkpoint 'epoch=2' in .*There is: @best, @last, epoch=0001, epoch=0003, epoch=0004"
    with pytest.raises(CheckpointError, match=expected):
        load("one/epoch=2", runs_dir=run.dir.parent)


def test_a_named_checkpoint_that_has_gone_is_a_word_to_the_page(run):
    with pytest.raises(HttpError, match="no such checkpoint any more") as caught:
        inspected(run, "epoch=0009")
    assert caught.value.status == 404


def test_damage_is_no_change(run):
    """Nothing is looked for twice where nothing has changed."""
    for checkpoint in run.checkpoints.all():
        (checkpoint.path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="No checkpoint of the run is whole"):
        run.checkpoints.find()
    with pytest.raises(CheckpointError, match="checksum"):
        run.checkpoints.find("@best")


def save(manager, value):
    manager.save(
        epoch=1,
        env_steps=1,
        mid_epoch=False,
        model={"weight": torch.full((2,), float(value))},
        parts={"workflow": {"value": value}},
        state={"counters": {"epoch": 1}},
        metrics={},
        best=True,
    )


def test_what_is_rewritten_while_it_is_read_is_read_again(tmp_path):
    manager, seen = CheckpointManager(tmp_path), []
    save(manager, 0)

    def take(checkpoint):
        value = checkpoint.read_part("workflow")["value"]
        seen.append(value)
        if value < 3:
            save(manager, value + 1)
        return value, checkpoint.read_model()["weight"].tolist()

    assert manager.read("@last", take) == (3, [3.0, 3.0])
    assert seen == [0, 1, 2, 3]


def test_a_reader_meets_a_checkpoint_that_is_just_renamed(tmp_path):
    """Listed while it is written and read when it has its name."""
    manager = CheckpointManager(tmp_path)
    save(manager, 1)
    os.rename(tmp_path / "epoch=0001.ckpt", tmp_path / ".tmp-77-epoch=0001.ckpt")

    def take(checkpoint):
        if checkpoint.path.name.startswith(".tmp-"):
            os.rename(checkpoint.path, tmp_path / "epoch=0001.ckpt")
        return checkpoint.path.name, checkpoint.read_part("workflow")

    assert manager.read("@last", take) == ("epoch=0001.ckpt", {"value": 1})
