import io
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from gymlab.errors import GymlabError
from gymlab.metrics.csv_file import read_metrics
from gymlab.metrics.names import ENV_STEPS
from gymlab.metrics.setup import open_monitor

COUNTERS = SimpleNamespace(env_steps=8, frames=8, vec_steps=1, updates=2, episodes=0, epoch=1)


def make(directory, **options):
    console = Console(file=io.StringIO(), force_terminal=False)
    names = {"run_id": "cartpole-1", "title": "CartPole-v1:ppo", "project": "CartPole-v1", "config": {"seed": 1}}
    return open_monitor(directory, **names, console=console, **options), console.file


def test_a_run_gets_its_csv_log_console_and_trackers(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("VIBES_DISABLE_SESSION_LOGS", raising=False)
    monitor, screen = make(tmp_path, tensorboard=True, wandb=True)
    monitor.log({"train/roll/ep_rew/mean": 20.0}, COUNTERS)
    monitor.close()
    assert read_metrics(tmp_path / "metrics.csv")[ENV_STEPS] == [8]
    assert "wandb sync" in (tmp_path / "run.log").read_text()
    assert list((tmp_path / "tensorboard").glob("events.*"))
    assert list((tmp_path / "wandb").glob("offline-run-*"))
    assert "return 20.00" in screen.getvalue()


def test_only_what_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("VIBES_DISABLE_SESSION_LOGS", "1")
    monitor, screen = make(tmp_path, quiet=True)
    monitor.log({"train/roll/ep_rew/mean": 20.0}, COUNTERS)
    monitor.close()
    assert [item.name for item in tmp_path.iterdir()] == ["metrics.csv"]
    assert screen.getvalue() == ""


def test_a_missing_tracker_is_found_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(GymlabError, match="pip install"):
        make(tmp_path, wandb=True)
    assert list(tmp_path.iterdir()) == []


def test_a_users_styles_below_the_current_directory_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "metrics.yaml").write_text("train/roll/ep_rew/mean: {precision: 4}\n")
    monitor, screen = make(tmp_path)
    monitor.log({"train/roll/ep_rew/mean": 20.0}, COUNTERS)
    monitor.close()
    assert "return 20.0000" in screen.getvalue()


def test_torch_is_not_imported_to_open_a_monitor():
    modules = "names, console, csv_file, recorder, setup, report, plots, statistics, video, tensorboard, wandb"
    code = f"import sys; from gymlab.metrics import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
