"""Pruning: what goes is chosen with care, moved in one step, and can come back."""

import os
import shutil

import pytest
from run_makers import make_run, tree

from gymlab.engine import prune
from gymlab.engine.lock import run_lock
from gymlab.engine.prune import Rules, empty_trash, make_plan, move_to_trash, restore, thin_checkpoints, trashed_runs
from gymlab.engine.registry import Filters, scan
from gymlab.engine.run import Run, find_run
from gymlab.errors import CheckpointError, GymlabError

EVERYTHING = Filters(words=("*",))


def going(runs_dir, **rules):
    return sorted(entry.id for entry in make_plan(runs_dir, scan(runs_dir), Rules(**rules)).going)


def kept(runs_dir, **rules):
    return {entry.id: reason for entry, reason in make_plan(runs_dir, scan(runs_dir), Rules(**rules)).kept}


@pytest.fixture
def runs(tmp_path):
    """Three runs of one experiment and two of another, of 1 to 5 days."""
    for age, score in ((1, 10.0), (2, 30.0), (3, 20.0)):
        make_run(tmp_path, f"a{age}", age_days=age, result={"mean": score})
    for age in (4, 5):
        make_run(tmp_path, f"b{age}", age_days=age, experiment="B:ppo", status="crashed")
    return tmp_path


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"older_than": 2.5 * 86400}, ["a3", "b4", "b5"]),
        ({"filters": Filters(status="crashed")}, ["b4", "b5"]),
        ({"keep": 1}, ["a2", "a3", "b5"]),
        ({"keep": 2}, ["a3"]),
        ({"keep_best": 1, "filters": Filters(words=("a*",))}, ["a1", "a3"]),
        ({"keep": 1, "keep_best": 1}, ["a3", "b5"]),
        ({"keep": 2, "older_than": 4.5 * 86400}, []),
        ({"keep": 1, "older_than": 2.5 * 86400}, ["a3", "b5"]),
    ],
)
def test_what_goes(runs, rules, expected):
    assert going(runs, **rules) == expected


def test_no_rule_is_told_apart():
    assert Rules().empty
    assert Rules(include_last=True).empty
    assert not Rules(keep=1).empty
    assert not Rules(Filters(algo="ppo")).empty


def test_a_running_run_stays(runs):
    with run_lock(runs / "a1"):
        assert "it is running" in kept(runs, filters=EVERYTHING)["a1"]
        with pytest.raises(GymlabError, match="is running"):
            move_to_trash(runs, Run(runs / "a1"))
    make_run(runs, "far", age_days=30, status="running", host="elsewhere", pid=1)
    assert "far" in kept(runs, older_than=86400.0)
    with pytest.raises(GymlabError, match="is running"):
        thin_checkpoints(Run(runs / "far"))


def test_the_last_run_stays_unless_it_is_included(runs):
    Run(runs / "b4").mark_last()
    assert going(runs, filters=Filters(status="crashed")) == ["b5"]
    assert "--include-last" in kept(runs, filters=Filters(status="crashed"))["b4"]
    assert going(runs, filters=Filters(status="crashed"), include_last=True) == ["b4", "b5"]


def test_what_may_be_starting_stays_and_what_never_started_goes(runs):
    for name in ("starting", "never"):
        (runs / name).mkdir()
    os.utime(runs / "never", (1e9, 1e9))
    assert going(runs, filters=Filters(status="incomplete")) == ["never"]
    assert "starting" in kept(runs, filters=Filters(status="incomplete"))


def test_damaged_runs_go_only_when_asked_for_and_foreign_directories_never(runs):
    (runs / "a1" / "run.json").write_text("{")
    (runs / "Pictures").mkdir()
    assert "a1" not in going(runs, filters=EVERYTHING)
    assert going(runs, filters=Filters(status="damaged")) == ["a1"]
    move_to_trash(runs, Run(runs / "a1"))
    assert not (runs / "a1").exists()


def test_to_the_trash_and_back(runs):
    before = tree(runs / "a2")
    target = move_to_trash(runs, Run(runs / "a2"))
    assert target.parent == runs / ".trash"
    assert target.name.startswith("a2-20")
    assert [entry.id for entry in scan(runs).entries] == ["a1", "a3", "b4", "b5"]
    assert [item.id for item in trashed_runs(runs)] == ["a2"]
    assert restore(runs, "a2").dir == runs / "a2"
    after = tree(runs / "a2")
    after.pop("run.lock")
    assert after == before
    assert trashed_runs(runs) == []


def test_the_newest_of_an_id_comes_back_first(runs):
    move_to_trash(runs, Run(runs / "a1"))
    make_run(runs, "a1", seed=99)
    move_to_trash(runs, Run(runs / "a1"))
    assert restore(runs, "a1").record["seed"] == 99
    with pytest.raises(GymlabError, match="exists already"):
        restore(runs, "a1")
    with pytest.raises(GymlabError, match="Did you mean 'a1'"):
        restore(runs, "a11")


def test_ids_that_end_in_a_time_are_told_apart(tmp_path):
    make_run(tmp_path, "a-20260101-000000")
    make_run(tmp_path, "a")
    for name in ("a-20260101-000000", "a"):
        move_to_trash(tmp_path, Run(tmp_path / name))
    assert {item.id for item in trashed_runs(tmp_path)} == {"a-20260101-000000", "a"}


def test_a_kill_while_the_trash_is_emptied_leaves_nothing_to_restore(runs, monkeypatch):
    move_to_trash(runs, Run(runs / "a1"))

    def killed(path):
        (path / "config.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(prune.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            empty_trash(runs)
    assert trashed_runs(runs) == []
    empty_trash(runs)
    assert list((runs / ".trash").iterdir()) == []


def test_links_are_never_followed(runs, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "precious").write_text("kept")
    victim = make_run(outside, "victim", checkpoints=(1, 2, 3))
    (runs / "link").symlink_to(victim.dir)
    (runs / "a1" / "data").symlink_to(outside)
    (runs / "a2" / "checkpoints").symlink_to(victim.dir / "checkpoints")
    before = tree(outside)
    assert "link" not in going(runs, filters=EVERYTHING)
    with pytest.raises(GymlabError, match="left alone"):
        move_to_trash(runs, Run(runs / "link"))
    with pytest.raises(GymlabError, match="left alone"):
        move_to_trash(runs, victim)
    with pytest.raises(GymlabError, match=r"checkpoints leads out of .*a2.*delete them"):
        thin_checkpoints(Run(runs / "a2"))
    for name in ("a1", "a2"):
        move_to_trash(runs, Run(runs / name))
    (runs / ".trash" / "stray").symlink_to(outside)
    empty_trash(runs)
    assert tree(outside) == before
    shutil.rmtree(runs / ".trash")
    (runs / ".trash").symlink_to(outside)
    with pytest.raises(GymlabError, match="is a link"):
        move_to_trash(runs, Run(runs / "a3"))
    with pytest.raises(GymlabError, match="is a link"):
        empty_trash(runs)
    assert tree(outside) == before


def test_checkpoints_are_thinned_to_best_and_last(tmp_path):
    run = make_run(tmp_path, "one", checkpoints=(1, 2, 3, 4), best=2)
    thin_checkpoints(run)
    directory = run.dir / "checkpoints"
    names = ["best.ckpt", "epoch=0002.ckpt", "epoch=0004.ckpt", "last.ckpt"]
    assert sorted(path.name for path in directory.iterdir()) == names
    assert all((directory / link).resolve().is_dir() for link in ("best.ckpt", "last.ckpt"))
    assert run.checkpoints.find("@best").path.name == "epoch=0002.ckpt"


def test_nothing_is_thinned_while_a_kept_checkpoint_is_damaged(tmp_path):
    run = make_run(tmp_path, "one", checkpoints=(1, 2, 3), best=2)
    (run.dir / "checkpoints" / "epoch=0003.ckpt" / "manifest.json").write_text(
        '{"files": {"gone": {"size": 1, "sha256": ""}}}'
    )
    before = tree(run.dir / "checkpoints")
    with pytest.raises(CheckpointError, match="gone is missing"):
        thin_checkpoints(run)
    assert tree(run.dir / "checkpoints") == before


def test_the_last_link_of_a_pruned_run_falls_back(runs):
    Run(runs / "a3").mark_last()
    move_to_trash(runs, Run(runs / "a3"))
    assert find_run("@last", runs)[0].id == "a1"
