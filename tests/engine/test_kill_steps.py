"""A save that is killed before any of its calls to the system leaves a whole checkpoint: under a new name and under an existing one."""

import itertools
import json
import os
import shutil
import signal

import numpy as np
import pytest
import torch

from gymlab.engine.checkpoint import CheckpointManager

CALLS = ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "symlink", "fsync")
"""What of `os` a save calls; safetensors files are written by another library, which is a call of its own."""
EXIT_WHOLE = 7
LEAST_KILLS = 20


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """A killed process loses nothing that it has written; only a machine does, and none goes down here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def save(manager, epoch, value, *, chunks=False, best=False):
    references = {}
    if chunks:
        reference = manager.chunk_store.write(f"replay-{value}", {"x": np.full(8, value)})
        references = {reference.name: {"size": reference.size, "sha256": reference.sha256}}
    manager.save(
        epoch=epoch,
        env_steps=epoch,
        mid_epoch=False,
        model={"policy.weight": torch.full((4,), float(value))},
        parts={"workflow": {"value": value}, "optimizer": {"momentum": torch.full((4,), float(value))}},
        state={"counters": {"epoch": epoch}},
        metrics={"value": value},
        best=best,
        chunks=references,
    )


def in_a_child(work):
    """How a child process that does this work ends: killed, or with `EXIT_WHOLE` when it came to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(EXIT_WHOLE)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def killed_before(number, work):
    """Do the work; the process is killed instead of its call of that number."""

    def armed():
        count = itertools.count()

        def counting(call):
            def counted(*arguments, **keywords):
                if next(count) == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **keywords)

            return counted

        for name in CALLS:
            setattr(os, name, counting(getattr(os, name)))
        from gymlab.engine import checkpoint

        checkpoint.save_file = counting(checkpoint.save_file)
        work()

    status = in_a_child(armed)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == EXIT_WHOLE, status
    return os.WIFSIGNALED(status)


def kills(source, work, directory, first=0):
    """The directory as each kill leaves it, one for each call that the work makes, from the `first` on."""
    for number in itertools.count(first):
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(source, directory, symlinks=True)
        if not killed_before(number, lambda: work(CheckpointManager(directory / "checkpoints", keep=1))):
            assert number > LEAST_KILLS, "the calls were not counted"
            return
        yield number


def value_of(checkpoint):
    """What was saved in it, read from each of its files."""
    value = checkpoint.read_part("workflow")["value"]
    assert (checkpoint.read_model()["policy.weight"] == value).all()
    assert (checkpoint.read_part("optimizer")["momentum"] == value).all()
    assert checkpoint.metrics()["value"] == value
    assert [name.startswith(f"replay-{value}-") for name in checkpoint.chunks] in ([], [True])
    return value


@pytest.mark.parametrize("chunks", [False, True], ids=["", "with chunks"])
@pytest.mark.parametrize("existing", [False, True], ids=["a new name", "an existing name"])
def test_a_kill_before_any_call_of_a_save_leaves_a_whole_checkpoint(tmp_path, existing, chunks):
    epoch = 5 if existing else 6
    (tmp_path / "source").mkdir()
    save(CheckpointManager(tmp_path / "source" / "checkpoints", keep=1), 5, 1, chunks=chunks, best=True)
    found, links = [], set()
    for _ in kills(
        tmp_path / "source", lambda manager: save(manager, epoch, 2, chunks=chunks, best=True), tmp_path / "cut"
    ):
        manager = CheckpointManager(tmp_path / "cut" / "checkpoints", keep=1)
        value = value_of(manager.find("@last", resumable=True))
        assert value in (1, 2)
        assert value_of(manager.find("@best")) in (1, value)
        # What a resumed run does before its first step.
        manager.recover()
        checkpoint = manager.find("@last", resumable=True)
        assert checkpoint.path.name == checkpoint.name == f"epoch={epoch if value == 2 else 5:04d}.ckpt"
        assert value_of(checkpoint) == value
        manager.rewind(checkpoint)
        assert value_of(manager.find("@last", resumable=True)) == value
        links.add((os.readlink(manager.directory / "best.ckpt"), os.readlink(manager.directory / "last.ckpt")))
        assert value_of(manager.find("@best", resumable=True)) == value
        # The next save leaves nothing behind of what was killed.
        save(manager, 7, 3, chunks=chunks, best=True)
        assert sorted(os.listdir(manager.directory)) == ["best.ckpt", "epoch=0007.ckpt", "last.ckpt"]
        assert len(list(manager.chunk_store.directory.glob("*"))) == chunks
        found.append(value)
    # Early kills leave the old one, late ones the new one, and nothing in between.
    assert found == sorted(found)
    assert set(found) == {1, 2}
    assert links == {(f"epoch={number:04d}.ckpt",) * 2 for number in {5, epoch}}


def test_a_kill_while_the_replaced_checkpoint_steps_aside_costs_neither(tmp_path):
    manager = CheckpointManager(tmp_path, keep=1)
    save(manager, 5, 1)
    shutil.copytree(tmp_path / "epoch=0005.ckpt", tmp_path / ".old-77-epoch=0005.ckpt")
    save(CheckpointManager(tmp_path / "other"), 5, 2)
    shutil.rmtree(tmp_path / "epoch=0005.ckpt")
    os.rename(tmp_path / "other" / "epoch=0005.ckpt", tmp_path / ".tmp-77-epoch=0005.ckpt")
    assert value_of(manager.find("5")) == 2
    # One that was cut by a loss of power does not verify: the older one is there.
    (tmp_path / ".tmp-77-epoch=0005.ckpt" / "model.safetensors").write_bytes(b"")
    assert value_of(manager.find("@last")) == 1
    manager.recover()
    assert manager.find("@last").path.name == "epoch=0005.ckpt"
    assert value_of(manager.find("@last")) == 1


def test_what_was_being_written_without_a_manifest_is_no_checkpoint(tmp_path):
    manager = CheckpointManager(tmp_path)
    save(manager, 1, 1)
    shutil.copytree(tmp_path / "epoch=0001.ckpt", tmp_path / ".tmp-77-epoch=0002.ckpt")
    (tmp_path / ".tmp-77-epoch=0002.ckpt" / "manifest.json").unlink()
    manager.recover()
    assert [checkpoint.path.name for checkpoint in manager.all()] == ["epoch=0001.ckpt"]


def test_a_run_that_goes_back_gives_up_what_a_kill_left_of_its_future(tmp_path):
    manager = CheckpointManager(tmp_path / "checkpoints")
    for epoch in (1, 2, 3):
        save(manager, epoch, epoch, chunks=True)
    os.rename(manager.directory / "epoch=0003.ckpt", manager.directory / ".tmp-77-epoch=0003.ckpt")
    assert value_of(manager.find("@last", resumable=True)) == 3
    manager.rewind(manager.find("1"))
    manager.chunk_store.held.clear()
    manager.recover()
    assert [checkpoint.name for checkpoint in manager.all()] == ["epoch=0001.ckpt"]
    assert value_of(manager.find("@last", resumable=True)) == 1


@pytest.mark.parametrize("work", ["prune", "thin", "rewind"])
def test_a_kill_while_checkpoints_are_deleted_leaves_no_half_of_one(tmp_path, work):
    (tmp_path / "source").mkdir()
    source = CheckpointManager(tmp_path / "source" / "checkpoints", keep=4)
    for epoch in (1, 2, 3, 4):
        save(source, epoch, epoch, chunks=True)

    def delete(manager):
        if work == "prune":
            save(manager, 5, 5, chunks=True)
        elif work == "thin":
            manager.thin()
        else:
            manager.rewind(manager.find("1"))

    # The first calls of a save write, as those of the tests above.
    for _ in kills(tmp_path / "source", delete, tmp_path / "cut", first=40 if work == "prune" else 0):
        manager = CheckpointManager(tmp_path / "cut" / "checkpoints")
        for checkpoint in manager.all():
            checkpoint.verify()
            checkpoint.verify_chunks()
            assert value_of(checkpoint) == checkpoint.place[0]
        assert manager.all()


def test_a_symlinked_name_is_replaced_without_what_it_leads_to(tmp_path):
    manager = CheckpointManager(tmp_path / "checkpoints", keep=1)
    save(manager, 1, 1)
    outside = tmp_path / "outside.ckpt"
    shutil.copytree(manager.directory / "epoch=0001.ckpt", outside)
    (manager.directory / "epoch=0002.ckpt").symlink_to(outside)
    before = json.loads((outside / "manifest.json").read_text())
    save(manager, 2, 2)
    (manager.directory / "epoch=0003.ckpt").symlink_to(outside)
    save(manager, 4, 4)
    assert [checkpoint.name for checkpoint in manager.all()] == ["epoch=0004.ckpt"]
    assert json.loads((outside / "manifest.json").read_text()) == before
    assert sorted(os.listdir(outside)) == sorted([*before["files"], "manifest.json"])
