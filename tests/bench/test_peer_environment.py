"""Peers in environments of their own: made once, and each job where it belongs."""

import json
import sys
from pathlib import Path

import pytest

from gymlab.bench import peer_environment
from gymlab.errors import GymlabError


def test_each_library_runs_in_its_own_environment(monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(
        peer_environment, "run_worker", lambda job, timeout, command=None: started.append(command) or {}
    )
    run = peer_environment.peer_worker("peer", tmp_path / "bin" / "python", Path("peers/peer_script.py"))
    for library in ("gymlab", "peer"):
        run({"library": library, "observation": [4]}, 10.0)
    own, (python, _, script, job) = started
    assert own is None
    assert python == str(tmp_path / "bin" / "python")
    assert script == "peers/peer_script.py"
    assert json.loads(job) == {"library": "peer", "observation": [4]}


def test_an_environment_is_made_once(monkeypatch, tmp_path):
    commands, said = [], []

    def run(packages, *command):
        commands.append(command)
        (tmp_path / "peer").mkdir(exist_ok=True)

    monkeypatch.setattr(peer_environment, "_run", run)
    for _ in range(2):
        python = peer_environment.peer_python(tmp_path / "peer", ["sheeprl==0.8.4"], said.append)
    assert python == tmp_path / "peer" / "bin" / "python"
    assert said == [f"installing sheeprl==0.8.4 into {tmp_path / 'peer'}, once"]
    assert [command[2] for command in commands] == ["venv", "pip"]
    assert "sheeprl==0.8.4" in commands[1]
    assert any(package.startswith("torch==") for package in commands[1])
    # Another version is another environment.
    peer_environment.peer_python(tmp_path / "peer", ["sheeprl==0.8.5"], said.append)
    assert len(said) == 2


def test_an_installation_that_fails_says_why():
    with pytest.raises(GymlabError, match=r"(?s)a==1 could not be installed.*No module named no_such_module"):
        peer_environment._run(["a==1"], sys.executable, "-m", "no_such_module")
