from pathlib import Path
from types import SimpleNamespace

import pytest

from gymlab.metrics.monitor import Monitor, Sink


class Listener(Sink):
    def __init__(self, fails=False):
        self.seen = []
        self.fails = fails

    def log(self, row, env_steps):
        self.seen.append(("log", dict(row), env_steps))

    def log_video(self, path, name, env_steps):
        self.seen.append(("video", path, name, env_steps))

    def notice(self, message):
        self.seen.append(("notice", message))

    def log_text(self, message):
        self.seen.append(("text", message))

    def close(self):
        self.seen.append(("close",))
        if self.fails:
            raise OSError("disk full")


COUNTERS = SimpleNamespace(env_steps=8, frames=8, vec_steps=1, updates=2, episodes=0, epoch=1)


def test_each_sink_sees_the_row_with_the_counters_once():
    sinks = [Listener(), Listener()]
    Monitor(sinks).log({"train/loss/policy": 0.5}, COUNTERS)
    for sink in sinks:
        ((_, row, env_steps),) = sink.seen
        assert env_steps == 8
        assert row["train/cnt/env_steps"] == 8
        assert row["train/cnt/epoch"] == 1
        assert row["train/loss/policy"] == 0.5


def test_videos_and_messages_reach_the_sinks():
    sink = Listener()
    monitor = Monitor([sink])
    monitor.log_video(Path("a.mp4"), "val/video", 16)
    monitor.notice("hello")
    monitor.notice("hello")
    monitor.log_text("only for the record")
    assert sink.seen == [
        ("video", Path("a.mp4"), "val/video", 16),
        ("notice", "hello"),
        ("notice", "hello"),
        ("text", "only for the record"),
    ]
    assert monitor.notices == ["hello"]


def test_secrets_in_messages_are_blanked():
    sink = Listener()
    monitor = Monitor([sink])
    monitor.notice("WANDB_API_KEY=canary-value-123")
    assert "canary" not in str(sink.seen) + str(monitor.notices)


def test_closing_closes_every_sink_even_when_one_fails_and_only_once():
    first, second = Listener(), Listener(fails=True)
    monitor = Monitor([first, second])
    with pytest.raises(OSError, match="disk full"):
        monitor.close()
    monitor.close()
    assert first.seen == second.seen == [("close",)]
