"""Chunk files: written once, shared by checkpoints, deleted when nobody needs them; a kill or damage costs no more than it must."""

import json
import multiprocessing
import os
import random
import shutil
import time

import numpy as np
import pytest
import replaying  # noqa: F401 (registers the workflow)
import torch
from test_kill import kill_three_times

import gymlab
from gymlab.buffers.chunk_files import ChunkFiles
from gymlab.buffers.rollout import RolloutBuffer
from gymlab.buffers.sequence import Field, Records, SequenceReplay
from gymlab.engine.checkpoint import CheckpointManager
from gymlab.engine.chunk_store import ChunkStore, attach_buffers, referenced_by
from gymlab.engine.prune import thin_checkpoints
from gymlab.engine.run import Run
from gymlab.errors import CheckpointError, ConfigError

SETTINGS = {
    "algo": "replaying",
    "n_envs": 2,
    "max_env_steps": 24 * 64,
    "quiet": True,
    "video": False,
    "eval_freq_epochs": 2,
    "eval_episodes": 1,
    "eval_max_episode_steps": 5,
    "early_stop_on_eval_threshold": False,
    "keep_checkpoints": 20,
    "seed": 3,
}


def train(runs, run_id, **fields):
    return gymlab.train("CartPole-v1", runs_dir=runs, run_id=run_id, **{**SETTINGS, **fields})


def outcome(run):
    """Every batch that the run was shown, in two forms."""
    rows = {name: values for name, values in run.metrics.items() if not name.startswith("sys/")}
    return rows, run.checkpoints.find().read_model()["memory.sums"].tolist()


def files(run):
    return {path.name for path in (run.dir / "replay").iterdir()}


def needed(run):
    return {name for checkpoint in run.checkpoints.all() for name in checkpoint.chunks}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never interrupted."""
    return train(tmp_path_factory.mktemp("whole"), "whole")


def copied(run, runs_dir, name="cut"):
    """The run's directory under another name in another place."""
    runs_dir.mkdir(exist_ok=True)
    shutil.copytree(run.dir, runs_dir / name, symlinks=True)
    return Run(runs_dir / name)


def test_what_a_run_leaves(whole):
    assert files(whole) == needed(whole)
    newest = whole.checkpoints.all()[-1]
    assert any("-latents-" in name for name in newest.chunks)
    assert sum(metrics is not None for metrics in whole.metrics["train/replay/age"]) > 10
    assert newest.read_state()["parts"]["buffers"]["replay"]["streams"][0]["written"] > 24 * 32


def test_on_disk_the_run_is_the_same(whole, tmp_path):
    on_disk = train(tmp_path, "disk", replay_on_disk=True)
    assert outcome(on_disk) == outcome(whole)
    assert files(on_disk) == needed(on_disk)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_copied_run_goes_on_elsewhere_from_an_earlier_epoch_bit_for_bit(whole, tmp_path, on_disk):
    source = train(tmp_path / "here", "disk", replay_on_disk=True) if on_disk else whole
    cut = copied(source, tmp_path / "elsewhere")
    assert cut.metrics["train/cnt/epoch"][-1] > 10
    resumed = gymlab.resume("cut", epoch=10, runs_dir=tmp_path / "elsewhere")
    assert resumed.record["resumed"][0]["from"] == "epoch=0010.ckpt"
    assert outcome(resumed) == outcome(whole)
    assert files(resumed) == needed(resumed)


def test_going_back_deletes_what_only_later_checkpoints_needed(whole, tmp_path):
    cut = copied(whole, tmp_path)
    cut.checkpoints.rewind(cut.checkpoints.find("8"))
    assert cut.checkpoints.all()[-1].path.name == "epoch=0008.ckpt"
    assert files(cut) == needed(cut)
    assert files(cut) < files(whole)


def test_thinned_checkpoints_take_their_chunks_along(whole, tmp_path):
    cut = copied(whole, tmp_path)
    thin_checkpoints(cut)
    assert 1 <= len(cut.checkpoints.all()) <= 2
    assert files(cut) == needed(cut)
    assert files(cut) < files(whole)
    assert outcome(gymlab.resume("cut", runs_dir=tmp_path)) == outcome(whole)


def test_three_kills_change_nothing(tmp_path):
    fields = {"max_env_steps": 72 * 64, "eval_freq_epochs": 4, "keep_checkpoints": 3, "replay_size": 200}
    settings = {**SETTINGS, **fields, "replay_on_disk": True}
    once = gymlab.train("CartPole-v1", runs_dir=tmp_path, run_id="once", **settings)
    cut = kill_three_times(tmp_path, "CartPole-v1", settings)
    assert outcome(cut) == outcome(once)
    assert files(cut) == needed(cut)


def test_a_damaged_chunk_is_named_and_the_checkpoint_before_it_taken(whole, tmp_path, caplog):
    cut = copied(whole, tmp_path)
    checkpoints = cut.checkpoints.all()
    earlier = {name for checkpoint in checkpoints[:-2] for name in checkpoint.chunks}
    victim = sorted(set(checkpoints[-1].chunks) & set(checkpoints[-2].chunks) - earlier)[0]
    path = cut.dir / "replay" / victim
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(bytes(content))
    checkpoints[-1].verify()
    assert cut.checkpoints.find().path == checkpoints[-1].path
    with pytest.raises(CheckpointError, match=f"{victim} is damaged: it does not match its checksum"):
        cut.checkpoints.find(checkpoints[-1].path.name, resumable=True)
    assert cut.checkpoints.find("@last", resumable=True).path == checkpoints[-3].path
    assert victim in caplog.text
    path.write_bytes(bytes(content[:-1]))
    with pytest.raises(CheckpointError, match=rf"{victim} is damaged: it has \d+ bytes"):
        checkpoints[-1].verify()
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{victim} is missing"):
        checkpoints[-1].verify()
    assert outcome(gymlab.resume("cut", runs_dir=tmp_path)) == outcome(whole)


def test_an_agent_can_act_without_the_replay(whole, tmp_path):
    cut = copied(whole, tmp_path)
    shutil.rmtree(cut.dir / "replay")
    agent = gymlab.load("cut", runs_dir=tmp_path)
    assert agent.act(np.zeros((1, 4), np.float32)) is not None
    with pytest.raises(CheckpointError, match="No checkpoint of the run is whole"):
        gymlab.resume("cut", runs_dir=tmp_path)


def test_a_replay_from_yaml_is_completed_by_the_workflow(whole, tmp_path):
    node = {"_target_": "sequence_replay", "_partial_": True, "least": 60}
    assert outcome(train(tmp_path, "named", buffers={"replay": node})) == outcome(whole)
    with pytest.raises(ConfigError, match=r"buffers\.replya.*Did you mean 'replay'"):
        train(tmp_path, "misnamed", buffers={"replya": node})


def test_the_plan_says_how_large_the_replay_is_and_a_run_that_cannot_fit_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="replay_on_disk: true"):
        train(tmp_path, "large", replay_size=10**12)
    assert not (tmp_path / "large").exists()
    with pytest.raises(ConfigError, match="GB are free"):
        train(tmp_path, "large", replay_size=10**12, replay_on_disk=True)


def test_buffers_without_files_are_left_alone(tmp_path):
    buffers = {"rollout": RolloutBuffer()}
    attach_buffers(buffers, ChunkFiles(tmp_path / "replay"))
    assert referenced_by(buffers) == {}
    assert not (tmp_path / "replay").exists()


def test_only_chunk_files_that_nobody_needs_are_deleted(tmp_path):
    store = ChunkStore(tmp_path / "replay")
    store.collect(())
    first, second, third = (store.write(f"replay-{i}", {"x": np.arange(i)}) for i in (1, 2, 3))
    store.release(first)
    store.release(second)
    (store.directory / "notes.txt").write_text("mine")
    (store.directory / f".{first.name}.123.tmp").write_bytes(b"half")
    store.collect({second.name})
    assert {path.name for path in store.directory.iterdir()} == {second.name, third.name, "notes.txt"}
    (tmp_path / "linked").symlink_to(store.directory)
    ChunkStore(tmp_path / "linked").collect(())
    assert store.path(second).exists()


def test_nothing_is_deleted_while_a_manifest_cannot_be_read(whole, tmp_path, caplog):
    cut = copied(whole, tmp_path)
    before = files(cut)
    (cut.checkpoints.all()[0].path / "manifest.json").write_text("{")
    cut.checkpoints.rewind(cut.checkpoints.all()[-1])
    assert files(cut) == before
    assert "no longer needed stay" in caplog.text


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "replay/x-000000000000.safetensors", ""])
def test_a_manifest_cannot_name_a_file_outside(whole, tmp_path, name):
    cut = copied(whole, tmp_path)
    checkpoint = cut.checkpoints.all()[-1]
    manifest = json.loads((checkpoint.path / "manifest.json").read_text())
    manifest["chunks"][name] = {"size": 0, "sha256": ""}
    (checkpoint.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="is missing"):
        checkpoint.verify()


def test_a_disk_that_is_full_leaves_the_checkpoints_before_it_whole(tmp_path, monkeypatch):
    replay, manager = filled(tmp_path)
    save(manager, replay, 1)
    grow(replay, 2)

    def full(_handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("gymlab.buffers.chunk_files.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            save(manager, replay, 2)
    assert not list(manager.chunk_store.directory.glob(".*"))
    assert manager.find(resumable=True).place[0] == 1
    save(manager, replay, 2)
    assert manager.find(resumable=True).place[0] == 2


FIELDS = {"observation/observation": Field((16,), np.float32)}
LATENTS = {"latent/x": Field((64,), np.float32)}


def filled(directory):
    """A replay whose values say which epoch they were last written in, and the checkpoints of its run."""
    directory.mkdir(exist_ok=True)
    manager = CheckpointManager(directory / "checkpoints", keep=2)
    replay = SequenceReplay(
        FIELDS, 2, np.random.default_rng(0), capacity=160, batch_size=8, length=7, latents=LATENTS, chunk=16
    )
    attach_buffers({"replay": replay}, manager.chunk_store)
    grow(replay, 1)
    return replay, manager


def grow(replay, epoch, count=60):
    for env in range(2):
        values = np.full((count, 16), epoch, np.float32)
        replay.add([Records(np.full(count, env), {"observation/observation": values})])
    for _ in range(4):
        batch = replay.sample()
        replay.write_back((batch.ids, {"latent/x": np.full((*batch.ids.shape, 64), epoch, np.float32)}))


def save(manager, replay, epoch):
    state = replay.get_state()
    manager.save(
        epoch=epoch,
        env_steps=epoch,
        mid_epoch=False,
        model={"weight": torch.zeros(2)},
        parts={"buffers": {"replay": state}},
        state={"counters": {"epoch": epoch}},
        metrics={},
        best=epoch % 5 == 0,
        chunks=referenced_by({"replay": replay}),
    )


def save_forever(directory, count=100_000):
    """Go on from the newest checkpoint, and save after each epoch."""
    replay, manager = filled(directory)
    epoch = 1
    if manager.all():
        checkpoint = manager.find(resumable=True)
        epoch = checkpoint.place[0]
        replay.set_state(checkpoint.read_part("buffers")["replay"])
    for later in range(epoch + 1, epoch + 1 + count):
        grow(replay, later)
        save(manager, replay, later)
    return replay


def test_a_kill_at_any_instant_leaves_a_whole_replay(tmp_path):
    generator, context = random.Random(0), multiprocessing.get_context("fork")
    began = time.monotonic()
    save_forever(tmp_path / "cut", count=4).close()
    one_save, newest = (time.monotonic() - began) / 4, 5
    for _ in range(16):
        process = context.Process(target=save_forever, args=(tmp_path / "cut",))
        process.start()
        time.sleep(generator.uniform(0, min(6 * one_save, 2)))
        process.kill()
        process.join()
        epoch = CheckpointManager(tmp_path / "cut" / "checkpoints").find(resumable=True).place[0]
        assert epoch >= newest
        newest = epoch
    assert newest > 6
    killed = save_forever(tmp_path / "cut", count=2)
    whole = save_forever(tmp_path / "whole", count=newest + 1)
    for _ in range(5):
        first, second = killed.sample(), whole.sample()
        for name, array in first.values.items():
            np.testing.assert_array_equal(array, second.values[name])
    manager = CheckpointManager(tmp_path / "cut" / "checkpoints")
    needed = {name for checkpoint in manager.all() for name in checkpoint.chunks}
    assert set(os.listdir(tmp_path / "cut" / "replay")) == needed
