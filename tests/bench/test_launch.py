import subprocess
import time

import psutil
import pytest

from gymlab.bench.launch import WorkerFailure, busy_cores, run_worker, worker_environment


def test_the_callers_thread_settings_do_not_reach_a_worker(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    by_default = worker_environment(None)
    assert "OMP_NUM_THREADS" not in by_default
    assert "OMP_WAIT_POLICY" not in by_default
    assert worker_environment(1)["OMP_NUM_THREADS"] == "1"


def test_a_worker_that_breaks_says_how():
    with pytest.raises(WorkerFailure, match="KeyError: 'no such task'"):
        run_worker({"task": "no such task", "threads": None}, timeout=60)


def test_a_worker_that_hangs_is_ended_with_all_it_started(monkeypatch, tmp_path):
    # Stands in for the interpreter: starts a child, notes both, and waits.
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!/bin/sh\nsleep 60 &\necho $$ $! > {tmp_path}/pids\nwait\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr("gymlab.bench.launch.sys.executable", str(stand_in))
    with pytest.raises(WorkerFailure, match=r"no answer within 0.5 s"):
        run_worker({"task": "train", "library": "skrl", "threads": 1}, timeout=0.5)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_busy_cores_leaves_nothing_running(monkeypatch):
    started = []
    popen = subprocess.Popen

    def remember(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    with busy_cores(2):
        assert [process.poll() for process in started] == [None, None]
    assert all(process.poll() is not None for process in started)
