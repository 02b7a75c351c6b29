"""Links that lead out of a run are found at any depth, and each writer alone follows none."""

import os

import numpy as np
import pytest
import torch

from gymlab.engine.changes import Change, ChangeLog
from gymlab.engine.faults import write_evidence
from gymlab.engine.files import relative_link, write_json
from gymlab.engine.links import links_out, refuse_links_out
from gymlab.engine.lock import look_at, run_lock
from gymlab.engine.run import Run
from gymlab.engine.workflow import Counters
from gymlab.errors import GymlabError, NonFiniteError
from gymlab.metrics.csv_file import CsvSink
from gymlab.metrics.runlog import RunLogSink
from gymlab.metrics.video import VideoWriter


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run" / "checkpoints" / "epoch=0001.ckpt").mkdir(parents=True)
    return tmp_path / "run"


@pytest.mark.parametrize(
    "name", ["run.log", "checkpoints/last.ckpt", "checkpoints/epoch=0001.ckpt/video.mp4", ".hidden", "new"]
)
@pytest.mark.parametrize("target", ["../outside", "../gone", "/etc", "../run-2/run.log", "../run/../outside"])
def test_a_link_out_is_found_wherever_it_lies(run, name, target):
    (run.parent / "outside").mkdir()
    (run / name).symlink_to(target if target.startswith("/") else run / target)
    assert links_out(run) == [name]
    with pytest.raises(GymlabError, match=rf"Run run: {name} leads out of .*delete them"):
        refuse_links_out(run)


def test_a_link_by_way_of_another_is_found(run):
    (run / "one").symlink_to("two")
    (run / "two").symlink_to("checkpoints/three")
    (run / "checkpoints" / "three").symlink_to(run.parent)
    assert links_out(run) == ["checkpoints/three", "one", "two"]


def test_links_within_a_run_are_its_own(run, tmp_path):
    relative_link(run / "checkpoints" / "last.ckpt", "epoch=0001.ckpt")
    (run / "gone").symlink_to("nothing")
    (run / "loop").symlink_to("loop")
    (run / "absolute").symlink_to(run / "checkpoints")
    (tmp_path / "elsewhere").symlink_to(run)
    assert links_out(run) == links_out(tmp_path / "elsewhere") == []
    refuse_links_out(run)


def test_a_tracker_may_link_to_its_logs_but_its_directory_is_no_link(run, tmp_path):
    (run / "wandb" / "run-1" / "logs").mkdir(parents=True)
    (run / "wandb" / "run-1" / "logs" / "debug-core.log").symlink_to(tmp_path / "cache.log")
    assert links_out(run) == []
    (run / "checkpoints" / "wandb").symlink_to(tmp_path)
    assert links_out(run) == ["checkpoints/wandb"]
    os.rename(run / "wandb", tmp_path / "wandb")
    (run / "wandb").symlink_to(tmp_path / "wandb")
    assert links_out(run) == ["checkpoints/wandb", "wandb"]


def test_only_the_names_that_are_asked_for(run, tmp_path):
    (run / "notes").symlink_to(tmp_path)
    (run / "run.log").symlink_to(tmp_path)
    assert links_out(run, ("run.log", "run.json", "checkpoints")) == ["run.log"]


def test_many_are_named_in_part(run, tmp_path):
    for number in range(9):
        (run / f"link-{number}").symlink_to(tmp_path)
    with pytest.raises(GymlabError, match=r"link-0, .*link-4 and 4 more lead out"):
        refuse_links_out(run)


def lock(run):
    with run_lock(run):
        pass


def record_video(path):
    with VideoWriter(path) as video:
        video.add(np.zeros((16, 16, 3), np.uint8))


def write_batch(run):
    (run / "non_finite").mkdir(exist_ok=True)
    write_evidence(NonFiniteError("nan", data={"batch": torch.ones(2)}), Run(run), Counters())


OPENED = {
    "run.lock": lock,
    ".run.json.lock": lambda run: Run(run).update_record(status="x"),
    "run.log": lambda run: RunLogSink(run / "run.log").close(),
    "metrics.csv": lambda run: CsvSink(run / "metrics.csv").close(),
    "changes.jsonl": lambda run: ChangeLog(run).append([Change("policy_lr", 1.0, "x", 0.0)]),
}
REPLACED = {
    "config.json": lambda run: write_json(run / "config.json", {}),
    "video.mp4": lambda run: record_video(run / "video.mp4"),
    ".video.PID.tmp.mp4": lambda run: record_video(run / "video.mp4"),
    "non_finite/batch.safetensors": write_batch,
}


@pytest.mark.parametrize("kind", ["file", "nothing", "pipe"])
@pytest.mark.parametrize("name", OPENED)
def test_what_is_written_on_is_no_link(run, tmp_path, name, kind):
    outside = tmp_path / "outside"
    if kind == "file":
        outside.write_text("precious, no line end")
    elif kind == "pipe":
        os.mkfifo(outside)
    (run / name).symlink_to(outside)
    with pytest.raises(GymlabError, match=f"{name} is a link"):
        OPENED[name](run)
    assert outside.exists() == (kind != "nothing")
    assert kind != "file" or outside.read_text() == "precious, no line end"


@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_leaves_alone_where_a_link_led(run, tmp_path, name):
    place = run / name.replace("PID", str(os.getpid()))
    place.parent.mkdir(exist_ok=True)
    outside = tmp_path / "outside"
    outside.write_text("precious")
    place.symlink_to(outside)
    REPLACED[name](run)
    assert outside.read_text() == "precious"
    assert not place.is_symlink()


@pytest.mark.parametrize("kind", ["link to a pipe", "pipe", "link to a file"])
def test_a_lock_that_is_no_file_keeps_nobody_waiting(run, tmp_path, kind):
    place = run / "run.lock" if kind == "pipe" else tmp_path / "outside"
    if kind == "link to a file":
        place.write_text("precious")
    else:
        os.mkfifo(place)
    if kind != "pipe":
        (run / "run.lock").symlink_to(place)
    assert look_at(run).held is None
