"""Checkpoints are whole or absent; damage is named; links and pruning keep what they should."""

import json
import os

import pytest
import torch

from gymlab.engine.checkpoint import CheckpointManager
from gymlab.errors import CheckpointError


def save(manager, epoch, *, best=False, **fields):
    return manager.save(
        epoch=epoch,
        env_steps=epoch * 10,
        mid_epoch=fields.pop("mid_epoch", False),
        model={"policy.weight": torch.full((2,), float(epoch))},
        parts={"optimizer": {"state": {0: {"step": torch.tensor(epoch)}}}, "workflow": {"count": epoch}},
        state={"workflow": "ppo", "counters": {"epoch": epoch}},
        metrics={"val/roll/ep_rew/mean": float(epoch), "train/loss/value": float("nan")},
        best=best,
        **fields,
    )


def test_what_is_saved_is_read_back(tmp_path):
    manager = CheckpointManager(tmp_path)
    save(manager, 3, best=True)
    checkpoint = manager.find()
    assert checkpoint.read_model()["policy.weight"].tolist() == [3.0, 3.0]
    assert checkpoint.read_part("optimizer")["state"][0]["step"] == 3
    assert checkpoint.read_part("workflow") == {"count": 3}
    assert checkpoint.read_part("envs") is None
    assert checkpoint.metrics()["val/roll/ep_rew/mean"] == 3.0
    assert os.readlink(tmp_path / "best.ckpt") == "epoch=0003.ckpt"


def test_best_last_and_the_newest_three_are_kept(tmp_path):
    manager = CheckpointManager(tmp_path, keep=3)
    for epoch in range(1, 9):
        save(manager, epoch, best=epoch == 2)
    kept = [checkpoint.path.name for checkpoint in manager.all()]
    assert kept == ["epoch=0002.ckpt", "epoch=0006.ckpt", "epoch=0007.ckpt", "epoch=0008.ckpt"]
    assert manager.find("@best").path.name == "epoch=0002.ckpt"
    assert manager.find("epoch=7").path.name == "epoch=0007.ckpt"
    assert manager.find("@last").path.name == "epoch=0008.ckpt"


def test_unknown_checkpoint_lists_what_there_is(tmp_path):
    manager = CheckpointManager(tmp_path)
    save(manager, 1)
    with pytest.raises(CheckpointError, match=r"epoch=9.*epoch=0001"):
        manager.find("epoch=9")


def test_a_checkpoint_without_manifest_is_never_picked_up(tmp_path):
    manager = CheckpointManager(tmp_path)
    save(manager, 1)
    save(manager, 2)
    (tmp_path / "epoch=0002.ckpt" / "manifest.json").unlink()
    assert manager.find("@last").path.name == "epoch=0001.ckpt"


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path, caplog):
    manager = CheckpointManager(tmp_path)
    save(manager, 1)
    save(manager, 2)
    file = tmp_path / "epoch=0002.ckpt" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 0xFF
    file.write_bytes(bytes(content))
    assert manager.find("@last").path.name == "epoch=0001.ckpt"
    assert "epoch=0002.ckpt is damaged" in caplog.text
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*checksum"):
        manager.find("epoch=2")


def test_a_failed_write_leaves_earlier_checkpoints_untouched(tmp_path, monkeypatch):
    manager = CheckpointManager(tmp_path)
    save(manager, 1)

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gymlab.engine.checkpoint.write_json", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save(manager, 2)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir() if not path.is_symlink()] == ["epoch=0001.ckpt"]
    manager.find("@last").verify()


def test_a_failed_write_names_the_newest_checkpoint_that_is_whole_and_none_where_there_is_none(tmp_path, monkeypatch):
    manager = CheckpointManager(tmp_path / "one" / "checkpoints")
    (tmp_path / "one").mkdir()

    def fail():
        with monkeypatch.context() as patched:
            patched.setattr("gymlab.engine.checkpoint.save_file", full)
            with pytest.raises(CheckpointError, match="No space left") as caught:
                save(manager, 3)
        return str(caught.value)

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    nothing = "It has no checkpoint to go on from. Make room or allow writing, then train again."
    assert fail().endswith(nothing)
    for epoch in (1, 2):
        save(manager, epoch)
    go_on = "is whole. Make room or allow writing, then go on: gymlab train --resume one"
    assert fail().endswith(f"Checkpoint epoch=0002.ckpt {go_on}")
    (manager.directory / "epoch=0002.ckpt" / "model.safetensors").unlink()
    assert fail().endswith(f"Checkpoint epoch=0001.ckpt {go_on}")
    (manager.directory / "epoch=0001.ckpt" / "model.safetensors").write_bytes(b"damaged")
    assert fail().endswith(nothing)


def test_a_stop_in_the_middle_of_an_epoch_does_not_replace_the_best(tmp_path):
    manager = CheckpointManager(tmp_path)
    save(manager, 4, best=True)
    save(manager, 4, mid_epoch=True)
    assert manager.find("@best").path.name == "epoch=0004.ckpt"
    assert manager.find("@last").path.name == "epoch=0004-step=40.ckpt"


def test_a_file_outside_the_checkpoint_cannot_be_named_by_the_manifest(tmp_path):
    manager = CheckpointManager(tmp_path)
    checkpoint = save(manager, 1)
    manifest = json.loads((checkpoint.path / "manifest.json").read_text())
    manifest["files"]["../../secret"] = {"size": 0, "sha256": ""}
    (checkpoint.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="missing"):
        checkpoint.verify()


def test_a_newer_format_is_refused_with_the_remedy(tmp_path):
    manager = CheckpointManager(tmp_path)
    checkpoint = save(manager, 1)
    state = json.loads((checkpoint.path / "state.json").read_text())
    (checkpoint.path / "state.json").write_text(json.dumps({**state, "format_version": 99}))
    with pytest.raises(CheckpointError, match="update gymlab"):
        checkpoint.read_state()


def test_a_video_travels_with_its_checkpoint(tmp_path):
    video = tmp_path / "clip.mp4"
    video.write_bytes(b"frames")
    manager = CheckpointManager(tmp_path / "checkpoints")
    assert save(manager, 1, video=video).video.read_bytes() == b"frames"
