"""Work in forked processes: what raises, dies or hangs fails alone."""

import os
import signal
import time
from pathlib import Path

from gymlab.cli.attempts import attempt_all, last_line
from gymlab.errors import ConfigError, NotInstalled


def work(name):
    print(f"working on {name}", flush=True)
    if name == "raises":
        raise ValueError("first\nsecond")
    if name == "teaches":
        raise ConfigError("n_envs is wrong")
    if name == "lacks":
        raise NotInstalled("pip install 'gymlab[atari]'")
    if name == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "exits":
        os._exit(3)
    if name == "hangs":
        pid = os.fork()
        if pid:
            Path("grandchild").write_text(str(pid))
        time.sleep(600)


def test_each_outcome_is_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["good", "raises", "teaches", "lacks", "dies", "exits", "hangs", "good/too"]
    outcomes = {outcome.name: outcome for outcome in attempt_all(names, work, tmp_path, jobs=2, timeout=2)}
    assert {name: outcome.state for name, outcome in outcomes.items()} == {
        "good": "PASS",
        "raises": "FAIL",
        "teaches": "FAIL",
        "lacks": "SKIP",
        "dies": "FAIL",
        "exits": "FAIL",
        "hangs": "FAIL",
        "good/too": "PASS",
    }
    assert outcomes["raises"].message == "ValueError: first second"
    assert outcomes["teaches"].message == "ConfigError: n_envs is wrong"
    assert outcomes["lacks"].message == "pip install 'gymlab[atari]'"
    assert outcomes["dies"].message == "its process died: SIGSEGV"
    assert outcomes["exits"].message == "its process died: exit code 3"
    assert outcomes["hangs"].message == "not done within 2 s"
    log = Path(outcomes["raises"].log).read_text()
    assert "working on raises" in log
    assert "Traceback" in log
    assert "Segmentation fault" in Path(outcomes["dies"].log).read_text()
    assert not (tmp_path / "good.log").exists()
    grandchild = int((tmp_path / "grandchild").read_text())
    end = time.monotonic() + 5
    while _lives(grandchild):
        assert time.monotonic() < end
        time.sleep(0.05)


def _lives(pid):
    """A killed process whose parent is gone may wait for its new parent: that is no life."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_an_error_on_one_line():
    assert last_line(RuntimeError("a\n  b")) == "RuntimeError: a b"
