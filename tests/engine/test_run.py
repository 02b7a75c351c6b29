"""Run directories: ids that stay inside, references, status."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymlab.config.schema import Config
from gymlab.engine.files import write_json
from gymlab.engine.run import Run, all_runs, check_run_id, find_run, runs_directory
from gymlab.errors import CheckpointError, GymlabError

CONFIG = Config(env_id="ALE/Pong-v5", algo_id="ppo", variant="ppo_Objects", seed=0)


def make(runs_dir, run_id):
    run = Run.create(runs_dir, CONFIG, run_id)
    write_json(run.dir / "config.json", {})
    return run


def test_generated_ids_are_valid_and_unique(tmp_path):
    first, second = Run.create(tmp_path, CONFIG), Run.create(tmp_path, CONFIG)
    assert first.id != second.id
    assert check_run_id(first.id).startswith("ale-pong-v5-ppo-objects-s0-")


def test_a_taken_id_is_an_error_that_names_it(tmp_path):
    make(tmp_path, "mine")
    with pytest.raises(GymlabError, match="'mine' exists already"):
        make(tmp_path, "mine")


@given(st.text(max_size=80))
def test_no_id_can_leave_the_runs_directory(text):
    try:
        run_id = check_run_id(text)
    except GymlabError:
        return
    assert run_id == os.path.basename(run_id)
    assert ".." not in run_id


@pytest.mark.parametrize("run_id", ["../x", "a/b", "", ".hidden", "UPPER", "a..b", "x" * 65, "@last", "a\n"])
def test_ids_that_are_refused(run_id):
    with pytest.raises(GymlabError, match="not allowed"):
        check_run_id(run_id)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("one", ("one", "@last")),
        ("one/@best", ("one", "@best")),
        ("one/epoch=13", ("one", "epoch=13")),
        ("@last", ("two", "@last")),
        ("@last/@best", ("two", "@best")),
    ],
)
def test_references(tmp_path, reference, expected):
    make(tmp_path, "one")
    make(tmp_path, "two").mark_last()
    run, which = find_run(reference, tmp_path)
    assert (run.id, which) == expected
    assert find_run(str(tmp_path / "one"), tmp_path / "elsewhere")[0].id == "one"


def test_unknown_run_names_the_nearest(tmp_path):
    make(tmp_path, "cartpole-ppo-1")
    with pytest.raises(CheckpointError, match="'cartpole-ppo-1'"):
        find_run("cartpole-ppo-2", tmp_path)


def test_no_run_yet(tmp_path):
    with pytest.raises(CheckpointError, match="no run"):
        find_run("@last", tmp_path)


def test_a_run_whose_process_is_gone_has_crashed(tmp_path):
    run = make(tmp_path, "one")
    run.update_record(status="running", pid=os.getpid(), host=os.uname().nodename)
    assert run.status == "running"
    run.update_record(pid=2**22 - 3)
    assert run.status == "crashed"
    assert [found.id for found in all_runs(tmp_path)] == ["one"]


def test_an_unwritable_directory_names_the_fix(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(GymlabError, match="--runs-dir"):
        Run.create(blocked / "runs", CONFIG)


def test_runs_directory_order(monkeypatch, tmp_path):
    monkeypatch.delenv("GYMLAB_RUNS", raising=False)
    assert str(runs_directory()) == "runs"
    monkeypatch.setenv("GYMLAB_RUNS", str(tmp_path))
    assert runs_directory() == tmp_path
    assert str(runs_directory("given")) == "given"
