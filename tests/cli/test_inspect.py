"""`gymlab inspect`: the address it prints, how it ends, and what it says when it cannot."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest


@pytest.fixture
def inspect(tmp_path):
    """Start the command; returns the process and the address that it printed."""
    processes = []

    def start(*words):
        environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "GYMLAB_RUNS")}
        process = subprocess.Popen(
            [sys.executable, "-m", "gymlab", "inspect", *map(str, words)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        line = process.stdout.readline()
        return process, re.search(r"http://\S+/", line)[0]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_it_prints_its_address_serves_and_ends_at_ctrl_c(inspect, trained):
    process, url = inspect("--port", 0, "--runs-dir", trained)
    assert url.startswith("http://127.0.0.1:")
    answer = json.load(urllib.request.urlopen(url + "api/runs"))
    assert [run["id"] for run in answer["runs"]] == ["tiny"]
    assert answer["initial"] == "tiny"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 0
    assert process.stderr.read().strip() == "Inspector ended."


def test_a_port_that_is_taken_gives_way_to_the_next(inspect, trained):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process, url = inspect("tiny", "--port", port, "--runs-dir", trained)
        assert url != f"http://127.0.0.1:{port}/"
        process.send_signal(signal.SIGINT)
        process.wait(timeout=10)
        assert f"port {port} is taken" in process.stderr.read()


def test_other_machines_are_let_in_only_with_a_warning(inspect, trained):
    process, url = inspect("--port", 0, "--host", "0.0.0.0", "--runs-dir", trained)
    assert urllib.request.urlopen(url).status == 200
    process.send_signal(signal.SIGINT)
    process.wait(timeout=10)
    assert "there is no password" in process.stderr.read()


def test_a_run_by_its_directory_and_no_runs_at_all(inspect, trained, tmp_path):
    _, url = inspect(trained / "tiny", "--port", 0)
    assert json.load(urllib.request.urlopen(url + "api/runs"))["initial"] == "tiny"
    _, url = inspect("--port", 0, "--runs-dir", tmp_path / "none")
    assert json.load(urllib.request.urlopen(url + "api/runs"))["runs"] == []


def test_what_cannot_be_is_explained(cli, trained):
    answer = cli("inspect", "tinny", "--runs-dir", trained)
    assert answer.code == 2
    assert "Did you mean 'tiny'?" in answer.err
    answer = cli("inspect", "tiny", "--run-id", "tiny", "--runs-dir", trained)
    assert answer.code == 2
    assert "Leave one out" in answer.err
    assert cli("inspect", "--port", "99999", "--runs-dir", trained).code == 2
