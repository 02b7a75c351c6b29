import logging
import re
from pathlib import Path

import pytest

from gymlab.metrics.monitor import Monitor
from gymlab.metrics.names import EPOCH, episode_return
from gymlab.metrics.runlog import RunLogSink, checkpoint_lines_enabled, run_log_enabled


@pytest.fixture
def clean_environment(monkeypatch):
    for name in ("VIBES_DISABLE_SESSION_LOGS", "VIBES_QUIET", "VIBES_DISABLE_CHECKPOINT_LOGS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_everything_notable_is_written_with_its_time(tmp_path, clean_environment):
    sink = RunLogSink(tmp_path / "run.log")
    monitor = Monitor([sink])
    monitor.notice("Taxi-v3 is loaded as Taxi-v4.")
    monitor.log_text("resolved: 8 environments")
    monitor.set_phase("ppo")
    monitor.set_phase("evaluation 1/100")
    monitor.set_phase("evaluation 2/100")
    monitor.checkpoint("checkpoint epoch=0012.ckpt")
    sink.log({EPOCH: 12, episode_return("val"): 480.5, episode_return("train"): 300.0}, 12_288)
    sink.log({EPOCH: 13, episode_return("train"): 301.0}, 13_312)
    sink.log_video(Path("videos/a.mp4"), "val/video", 12_288)
    logging.getLogger("gymlab.envs").warning("worker 3 was restarted")
    monitor.close()
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO   |WARNING) ", line) for line in lines)
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        "notice: Taxi-v3 is loaded as Taxi-v4.",
        "resolved: 8 environments",
        "phase ppo",
        "phase evaluation",
        "checkpoint epoch=0012.ckpt",
        "epoch 12, 12,288 env steps: evaluation return 480.50, training return 300.00",
        "video val/video at 12,288 env steps: videos/a.mp4",
        "worker 3 was restarted",
    ]


def test_a_closed_log_takes_nothing_more_and_leaves_the_logger_as_it_was(tmp_path, clean_environment):
    logger = logging.getLogger("gymlab")
    before = (logger.level, list(logger.handlers))
    sink = RunLogSink(tmp_path / "run.log")
    sink.close()
    logger.warning("after the run")
    assert (logger.level, logger.handlers) == before
    assert (tmp_path / "run.log").read_text() == ""


def test_no_secret_is_written_whoever_logs_it(tmp_path, clean_environment):
    sink = RunLogSink(tmp_path / "run.log")
    logging.getLogger("gymlab.hub").info("using %s", "hf_" + "CanaryCanaryCanaryCanary123456")
    sink.close()
    assert "Canary" not in (tmp_path / "run.log").read_text()


def test_environment_variables_switch_it_off(tmp_path, clean_environment):
    assert run_log_enabled()
    assert checkpoint_lines_enabled()
    clean_environment.setenv("VIBES_DISABLE_SESSION_LOGS", "1")
    assert not run_log_enabled()
    clean_environment.setenv("VIBES_DISABLE_SESSION_LOGS", "0")
    assert run_log_enabled()
    for name in ("VIBES_QUIET", "VIBES_DISABLE_CHECKPOINT_LOGS"):
        clean_environment.setenv(name, "1")
        assert not checkpoint_lines_enabled()
        sink = RunLogSink(tmp_path / f"{name}.log")
        sink.checkpoint("checkpoint epoch=0012.ckpt")
        sink.close()
        assert (tmp_path / f"{name}.log").read_text() == ""
        clean_environment.delenv(name)
