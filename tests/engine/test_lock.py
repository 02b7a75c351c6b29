"""The lock of a run directory: one process, and nobody once that is gone."""

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from gymlab.engine.files import write_json
from gymlab.engine.lock import LOCK_FILE, LockState, is_gone, look_at, run_lock
from gymlab.engine.run import Run
from gymlab.errors import CheckpointError, EnvironmentFailure, GymlabError, RunGone

LONG = ["max_env_steps=100_000_000", "eval_freq_epochs=null", "video=false", "checkpoint_minutes=0.005", "-q"]


def gymlab(runs_dir, *arguments):
    command = [sys.executable, "-m", "gymlab", "train", *arguments, "--runs-dir", str(runs_dir)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_until(condition, process=None, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill_group(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    process.stderr.close()


def test_held_and_free(tmp_path):
    assert look_at(tmp_path) == LockState(None)
    with run_lock(tmp_path):
        assert look_at(tmp_path) == LockState(True, os.getpid(), os.uname().nodename)
        owner = json.loads((tmp_path / LOCK_FILE).read_text())
        assert owner == {"pid": os.getpid(), "host": os.uname().nodename}
    assert look_at(tmp_path) == LockState(False)


def test_twice_in_one_process_is_refused_and_does_not_release_it(tmp_path):
    with run_lock(tmp_path):
        with pytest.raises(GymlabError, match=f"process {os.getpid()} on {os.uname().nodename}"), run_lock(tmp_path):
            pass
        assert in_another_process(look_at, tmp_path) == LockState(True, os.getpid(), os.uname().nodename)


def test_another_process_is_told_who_has_it(tmp_path):
    with run_lock(tmp_path):
        message = in_another_process(try_to_lock, tmp_path)
    assert f"is in use by process {os.getpid()} on {os.uname().nodename}" in message
    assert in_another_process(try_to_lock, tmp_path) == "locked"


def test_looking_never_stands_in_the_way(tmp_path):
    (tmp_path / LOCK_FILE).touch()
    context = multiprocessing.get_context("fork")
    watcher = context.Process(target=look_forever, args=(tmp_path,))
    watcher.start()
    try:
        for _ in range(2000):
            with run_lock(tmp_path):
                pass
    finally:
        watcher.kill()
        watcher.join()


def test_a_directory_that_was_moved_away_meanwhile_is_not_locked(tmp_path, monkeypatch):
    directory = tmp_path / "run"
    directory.mkdir()
    really_open = os.open

    def open_then_move(path, *arguments):
        descriptor = really_open(path, *arguments)
        directory.rename(tmp_path / "moved")
        return descriptor

    monkeypatch.setattr(os, "open", open_then_move)
    with pytest.raises(GymlabError, match="moved away"), run_lock(directory):
        pass


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file"), CheckpointError("Could not write it.")])
@pytest.mark.parametrize("away", ["deleted", "emptied", "replaced"])
def test_errors_of_a_directory_that_went_away_say_that_it_did(tmp_path, error, away):
    directory = tmp_path / "one"
    directory.mkdir()

    def fail(*, is_there):
        with run_lock(directory):
            assert not is_gone(directory)
            if not is_there:
                (directory / LOCK_FILE).unlink()
                if away == "deleted":
                    directory.rmdir()
                if away == "replaced":
                    (directory / LOCK_FILE).touch()
                assert is_gone(directory)
            raise error

    with pytest.raises(type(error)) as caught:
        fail(is_there=True)
    assert caught.value is error
    with pytest.raises(RunGone, match=r"one is gone, deleted" if away == "deleted" else "one was emptied") as caught:
        fail(is_there=False)
    assert caught.value.__cause__ is error
    assert not is_gone(directory)


def test_a_directory_that_is_gone_before_it_is_locked(tmp_path):
    with pytest.raises(RunGone), run_lock(tmp_path / "one"):
        pass
    assert not (tmp_path / "one").exists()


def test_what_a_run_came_to_is_told_though_its_directory_went_away(tmp_path):
    def fail():
        with run_lock(tmp_path):
            (tmp_path / LOCK_FILE).unlink()
            raise EnvironmentFailure("wrong shape")

    with pytest.raises(EnvironmentFailure, match="wrong shape"):
        fail()


def test_a_directory_without_locks_is_known_to_be_gone_too(tmp_path, monkeypatch, caplog):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", unsupported)
    with run_lock(tmp_path):
        assert "is on a file system without locks" in caplog.text
        assert not is_gone(tmp_path)
        (tmp_path / LOCK_FILE).unlink()
        assert is_gone(tmp_path)


def look_forever(directory):
    while True:
        look_at(directory)


def try_to_lock(directory):
    try:
        with run_lock(directory):
            return "locked"
    except GymlabError as error:
        return str(error)


def in_another_process(function, *arguments):
    """What a forked child gets: it inherits descriptors and what this process knows of its locks."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(function(*arguments)))
    child.start()
    answer = receiver.recv()
    child.join()
    return answer


def test_a_worker_that_outlives_its_killed_parent_does_not_keep_the_run(tmp_path):
    run = Run(tmp_path / "orphans")
    asynchronous = ["Acrobot-v1:ppo", "n_envs=2", "n_steps=32", "batch_size=64", "vectorization_mode=async"]
    process = gymlab(tmp_path, *asynchronous, *LONG, "--run-id", "orphans")
    workers = []
    try:
        wait_until(lambda: (run.dir / "checkpoints" / "last.ckpt").exists(), process)
        assert run.status == "running"
        assert (run.state.pid, run.record["pid"]) == (process.pid, process.pid)
        workers = psutil.Process(process.pid).children()
        assert len(workers) >= 2
        for worker in workers:
            worker.suspend()
        process.kill()
        process.wait(timeout=30)
        assert all(worker.is_running() for worker in workers)
        assert run.status == "crashed"
        assert run.state.reason == "the process ended without a word (killed?)"
        with run_lock(run.dir):
            assert run.status == "running"
    finally:
        for worker in workers:
            worker.kill()
        kill_group(process)


def test_of_two_resumes_at_once_one_trains_and_one_is_told_why_not(tmp_path):
    run = Run(tmp_path / "one")
    first = gymlab(tmp_path, "CartPole-v1:ppo", *LONG, "--run-id", "one")
    both = []
    try:
        wait_until(lambda: (run.dir / "checkpoints" / "last.ckpt").exists(), first)
        refused = gymlab(tmp_path, "--resume", "one")
        _, error = refused.communicate(timeout=60)
        assert refused.returncode == 2
        assert f"process {first.pid} on {os.uname().nodename}" in error
        kill_group(first)
        assert run.status == "crashed"
        both = [gymlab(tmp_path, "--resume", "one") for _ in range(2)]
        wait_until(lambda: any(process.poll() is not None for process in both))
        loser, winner = sorted(both, key=lambda process: process.poll() is None)
        assert loser.returncode == 2
        assert f"process {winner.pid} on {os.uname().nodename}" in loser.stderr.read()
        wait_until(lambda: run.record["pid"] == winner.pid, winner)
        assert run.status == "running"
        assert len(run.record["resumed"]) == 1
    finally:
        for process in (first, *both):
            kill_group(process)


def test_a_run_that_lost_its_record_goes_on(tmp_path):
    import gymlab as lab

    settings = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "video": False, "quiet": True, "eval_freq_epochs": None}
    run = lab.train("CartPole-v1:ppo", runs_dir=tmp_path, run_id="one", max_env_steps=256, seed=3, **settings)
    (run.dir / "run.json").unlink()
    assert run.status == "incomplete"
    again = lab.resume("one", runs_dir=tmp_path, max_env_steps=512)
    assert again.status == "finished"
    assert (again.record["experiment"], again.record["seed"]) == ("CartPole-v1:ppo", 3)
    write_json(run.dir / "run.json", [])
    with pytest.raises(GymlabError, match="is damaged"):
        lab.resume("one", runs_dir=tmp_path)
