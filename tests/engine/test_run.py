"""Run directories: ids that stay inside, references, status."""

import multiprocessing
import os
import subprocess
import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymlab.config.schema import Config
from gymlab.engine.files import write_json
from gymlab.engine.lock import run_lock, this_process
from gymlab.engine.run import (
    ENDED_WITHOUT_A_WORD,
    SILENT_SECONDS,
    Run,
    all_runs,
    check_run_id,
    find_run,
    refuse_if_training,
    runs_directory,
)
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


def test_a_number_that_another_process_got_does_not_look_like_running(tmp_path):
    run = make(tmp_path, "one")
    other = subprocess.Popen(["sleep", "60"])
    try:
        born = psutil.Process(other.pid).create_time()
        run.update_record(**{**this_process(), "status": "running", "pid": other.pid, "process_started": born})
        assert run.status == "running"
        run.update_record(process_started=born - 60)
        assert (run.status, run.state.reason) == ("crashed", ENDED_WITHOUT_A_WORD)
        run.update_record(process_started=born, boot="before the machine restarted")
        assert run.status == "crashed"
    finally:
        other.kill()
        other.wait()


def test_a_killed_process_that_nobody_waited_for_is_dead(tmp_path):
    run = make(tmp_path, "one")
    process = subprocess.Popen(["sleep", "60"])
    run.update_record(**{**this_process(), "status": "running", "pid": process.pid, "process_started": None})
    assert run.status == "running"
    process.kill()
    deadline = time.monotonic() + 10
    while run.status == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert run.status == "crashed"
    process.wait()


def test_the_lock_knows_better_than_the_record(tmp_path):
    run = make(tmp_path, "one")
    assert run.status == "incomplete"
    with run_lock(run.dir):
        assert run.status == "running"
        run.update_record(status="finished")
        assert (run.status, run.state.pid) == ("running", os.getpid())
    assert run.status == "finished"
    run.update_record(status="running", **this_process())
    assert run.status == "crashed"  # The process lives, but it trains no longer.


def test_a_run_of_another_host_is_running_as_far_as_known(tmp_path):
    run = make(tmp_path, "one")
    run.update_record(status="running", pid=7, host="elsewhere", boot="another", process_started=1.0)
    assert run.status == "running"
    assert run.state.reason == "on elsewhere, as far as known from here"
    with pytest.raises(GymlabError, match=r"on elsewhere \(process 7\)"):
        refuse_if_training(run)
    old = time.time() - SILENT_SECONDS - 1
    for path in (*run.dir.iterdir(), run.dir):
        os.utime(path, (old, old))
    refuse_if_training(run)


def test_a_container_that_is_gone_is_seen_by_its_lock(tmp_path):
    run = make(tmp_path, "one")
    with run_lock(run.dir):
        run.update_record(**{**this_process(), "status": "running", "host": "container-1"})
    assert run.status == "crashed"


def count_up(directory, name):
    for number in range(40):
        Run(directory).update_record(**{f"{name}{number}": number})


def test_two_processes_lose_no_field_of_the_record(tmp_path):
    run = make(tmp_path, "one")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=count_up, args=(run.dir, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert run.record == {f"{name}{number}": number for name in "ab" for number in range(40)}


@pytest.mark.parametrize("text", ["{", "[1, 2]", ""])
def test_a_damaged_record_is_named(tmp_path, text):
    run = make(tmp_path, "one")
    (run.dir / "run.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"run\.json"):
        _ = run.status
    assert find_run("one", tmp_path)[0].id == "one"


@pytest.mark.parametrize("target", ["gone", "../outside", "/etc"])
def test_a_last_link_that_leads_nowhere_falls_back_aloud(tmp_path, caplog, target):
    runs = tmp_path / "runs"
    make(runs, "one")
    make(tmp_path, "outside")
    (runs / "@last").symlink_to(target)
    assert find_run("@last", runs)[0].id == "one"
    assert f"@last points at {target}" in caplog.text


def mark_often(directory):
    for _ in range(100):
        Run(directory).mark_last()


def test_last_is_always_a_run_while_several_begin(tmp_path):
    directories = [make(tmp_path, name).dir for name in ("one", "two")]
    Run(directories[0]).mark_last()
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=mark_often, args=(directory,)) for directory in directories]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert find_run("@last", tmp_path)[0].id in ("one", "two")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_links_and_half_made_runs_are_refused_by_name(tmp_path):
    runs = tmp_path / "runs"
    make(tmp_path, "outside")
    make(runs, "one")
    (runs / "way-out").symlink_to(tmp_path / "outside")
    (runs / "half").mkdir()
    with pytest.raises(CheckpointError, match="leads out of"):
        find_run("way-out", runs)
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        find_run("half", runs)
    assert [run.id for run in all_runs(runs)] == ["one"]


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
