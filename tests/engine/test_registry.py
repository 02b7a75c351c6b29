"""Listing runs: what each directory tells, and damage that hides nothing else."""

import os
import time

import pytest
from run_makers import make_run

from gymlab.engine.lock import run_lock, this_process
from gymlab.engine.registry import Filters, checkpoint_entries, directory_size, read_entry, scan, sort_entries
from gymlab.engine.run import Run
from gymlab.errors import GymlabError

RESULT = {"mean": 480.0, "ci95": [470.0, 490.0], "n": 100, "threshold": 475.0, "solved": True}
METRICS = "train/cnt/env_steps,sys/time/wall,train/roll/ep_rew/mean\n100,1.5,20\n250,3.5,40.5\n300,4."


def ids(entries):
    return [entry.id for entry in entries]


def test_a_finished_run(tmp_path):
    make_run(tmp_path, "one", result=RESULT, best_return=490.0, seed=4)
    [entry] = scan(tmp_path).entries
    assert (entry.status, entry.reason, entry.experiment, entry.seed) == ("finished", "finished", "CartPole-v1:ppo", 4)
    assert (entry.env_id, entry.algo, entry.env_steps, entry.budget) == ("CartPole-v1", "ppo", 1000, 1000)
    assert (entry.seconds, entry.score, entry.result["solved"]) == (1.5, 480.0, True)


def test_a_running_run_tells_its_newest_row(tmp_path):
    run = make_run(tmp_path, "one", metrics=METRICS, status="running", **this_process())
    with run_lock(run.dir):
        [entry] = scan(tmp_path).entries
    assert (entry.status, entry.env_steps, entry.seconds, entry.train_return) == ("running", 250, 3.5, 40.5)
    [entry] = scan(tmp_path).entries
    assert (entry.status, entry.reason) == ("crashed", "the process ended without a word (killed?)")
    assert entry.env_steps == 250


def test_damage_is_named_and_hides_nothing(tmp_path):
    make_run(tmp_path, "whole")
    (make_run(tmp_path, "bad-record").dir / "run.json").write_text('{"status": "fin')
    (make_run(tmp_path, "bad-config").dir / "config.json").write_text("\x00\x01")
    (make_run(tmp_path, "no-settings").dir / "config.json").write_text("[]")
    make_run(tmp_path, "bad-metrics", metrics="train/cnt/env_steps\nmany\n", status="crashed")
    (tmp_path / "being-created").mkdir()
    (tmp_path / "Holiday pictures").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").touch()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "file").touch()
    (tmp_path / "@last").symlink_to("gone")
    (tmp_path / "link").symlink_to("whole")
    (tmp_path / ".trash").mkdir()
    found = scan(tmp_path)
    assert {entry.id: entry.status for entry in found.entries} == {"whole": "finished", "being-created": "incomplete"}
    problems = {entry.id: entry.reason for entry in found.damaged}
    assert problems.keys() == {"bad-record", "bad-config", "no-settings", "bad-metrics"}
    assert "run.json is not valid JSON" in problems["bad-record"]
    assert "config.json" in problems["bad-config"]
    assert "metrics.csv is damaged" in problems["bad-metrics"]
    assert found.foreign == ["Holiday pictures", "model", "notes"]


def test_fields_of_the_wrong_kind_are_unknown(tmp_path):
    make_run(tmp_path, "odd", started="yesterday", seconds=[], counters=3, result={"mean": "high"}, best_return=True)
    [entry] = scan(tmp_path).entries
    assert (entry.seconds, entry.env_steps, entry.result, entry.score) == (None, None, {}, None)
    assert entry.started == pytest.approx(time.time(), abs=60)


def test_a_directory_without_permission_is_damaged(tmp_path, monkeypatch):
    make_run(tmp_path, "open")
    locked = make_run(tmp_path, "locked")
    really_list = os.listdir

    def listdir(path):
        if path == locked.dir:
            raise PermissionError(13, "Permission denied", str(path))
        return really_list(path)

    monkeypatch.setattr(os, "listdir", listdir)
    found = scan(tmp_path)
    assert ids(found.entries) == ["open"]
    assert found.damaged[0].reason == (
        f"{locked.dir} cannot be read: Permission denied. Ask its owner for the permission to read it, or `chmod -R u+rwX` it."
    )


def test_a_run_that_goes_while_it_is_read_is_no_error(tmp_path):
    assert read_entry(Run(tmp_path / "gone")) is None


def test_no_directory_and_no_runs(tmp_path):
    assert scan(tmp_path / "nowhere").entries == []
    (tmp_path / "file").touch()
    with pytest.raises(GymlabError, match="--runs-dir"):
        scan(tmp_path / "file")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), ["a-1", "a-2", "b-1"]),
        (Filters(words=("cartpole",)), ["a-1", "a-2"]),
        (Filters(words=("A-1",)), ["a-1"]),
        (Filters(words=("*-1",)), ["a-1", "b-1"]),
        (Filters(words=("a-", "crashed")), ["a-2"]),
        (Filters(status="crashed"), ["a-2"]),
        (Filters(env="lunar*"), ["b-1"]),
        (Filters(env="Lunar"), []),
        (Filters(algo="reinforce"), ["b-1"]),
        (Filters(algo="rein"), []),
        (Filters(since=time.time() - 86400), ["a-2"]),
    ],
)
def test_filters(tmp_path, filters, expected):
    make_run(tmp_path, "a-1", age_days=2)
    make_run(tmp_path, "a-2", status="crashed")
    lunar = {"env_id": "LunarLander-v3", "algo_id": "reinforce"}
    make_run(tmp_path, "b-1", age_days=5, config=lunar, experiment="LunarLander-v3:reinforce")
    assert ids(entry for entry in scan(tmp_path).entries if filters.accept(entry)) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("started", ["new", "middle", "old"]),
        ("return", ["old", "new", "middle"]),
        ("steps", ["middle", "new", "old"]),
        ("time", ["new", "old", "middle"]),
        ("size", ["middle", "new", "old"]),
        ("name", ["middle", "new", "old"]),
        ("status", ["middle", "new", "old"]),
    ],
)
def test_sorting(tmp_path, key, expected):
    make_run(tmp_path, "old", age_days=9, result={"mean": 9.0}, counters={"env_steps": 1}, seconds=2, status="crashed")
    new = make_run(tmp_path, "new", best_return=5.0, counters={"env_steps": 2}, seconds=3, status="stopped")
    middle = make_run(tmp_path, "middle", age_days=1, counters={"env_steps": 3}, seconds=None)
    (new.dir / "big").write_bytes(bytes(10_000))
    (middle.dir / "big").write_bytes(bytes(20_000))
    entries = scan(tmp_path).entries
    assert ids(sort_entries(entries, key)) == expected
    unknown_last = [*(entry for entry in expected[::-1] if entry != "middle"), "middle"]
    backwards = unknown_last if key in ("return", "time") else expected[::-1]
    assert ids(sort_entries(entries, key, reverse=True)) == backwards


def test_an_unknown_sort_key_names_the_nearest(tmp_path):
    with pytest.raises(GymlabError, match="'return'"):
        sort_entries([], "retrun")


def test_sizes_follow_no_links(tmp_path):
    (tmp_path / "outside").write_bytes(bytes(5000))
    (tmp_path / "run" / "below").mkdir(parents=True)
    (tmp_path / "run" / "a").write_bytes(bytes(100))
    (tmp_path / "run" / "below" / "b").write_bytes(bytes(20))
    assert directory_size(tmp_path / "run") == 120
    (tmp_path / "run" / "c").symlink_to(tmp_path / "outside")
    assert directory_size(tmp_path / "run") < 1000


def test_checkpoints_with_what_points_at_them(tmp_path):
    run = make_run(tmp_path, "one", checkpoints=(1, 2, 3), best=2)
    (run.dir / "checkpoints" / "epoch=0004.ckpt").mkdir()
    assert [(entry.name, entry.links) for entry in checkpoint_entries(run)] == [
        ("epoch=0001.ckpt", ()),
        ("epoch=0002.ckpt", ("best",)),
        ("epoch=0003.ckpt", ("last",)),
    ]
