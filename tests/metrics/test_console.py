import io
import logging

import pytest
from rich.console import Console

from gymlab.metrics.alerts import Alert
from gymlab.metrics.console import ConsoleSink, Progress
from gymlab.metrics.monitor import Monitor
from gymlab.metrics.names import ENV_STEPS, EPOCH, episode_return
from gymlab.metrics.report import ReportData
from gymlab.metrics.results import judge
from gymlab.metrics.runlog import RunLogSink


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def make(terminal, **options):
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, height=30, color_system=None, _environ={})
    sink = ConsoleSink(title="CartPole-v1:ppo", budget=10_000, console=console, clock=clock, **options)
    return sink, clock, console.file


def row(env_steps, **metrics):
    named = {"train": episode_return("train"), "val": episode_return("val")}
    return {ENV_STEPS: env_steps, EPOCH: env_steps // 1000, **{named[name]: value for name, value in metrics.items()}}


REPORT = ReportData(
    "CartPole-v1:ppo",
    "r",
    "runs/r",
    "ppo",
    "CartPole-v1",
    0,
    "finished",
    judge({"mean": 500.0, "ci95": [500.0, 500.0], "n": 100, "threshold": 475}),
    10_000,
    80,
    9,
    2.0,
    1.5,
    "gymlab",
)


def test_a_pipe_gets_a_line_at_each_evaluation_and_else_one_in_ten_seconds():
    sink, clock, output = make(terminal=False)
    for second in range(1, 26):
        clock.now = float(second)
        sink.log(row(100 * second, train=1.0 * second), 100 * second)
    sink.log(row(2600, train=26.0, val=300.5), 2600)
    lines = output.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0].split("  ")[-1] == "return 1.00"
    assert "11%" in lines[1]
    assert "100/s" in lines[1]
    assert "eta 1:29" in lines[1]
    assert lines[3].endswith("return 26.00  evaluation 300.50 (best so far)")


def test_a_terminal_is_redrawn_a_few_times_a_second_at_most():
    sink, clock, output = make(terminal=True)
    drawn = []
    for index in range(1, 201):
        clock.now = index * 0.01
        sink.log(row(index * 50, train=float(index)), index * 50)
        drawn.append(output.getvalue().count("CartPole-v1:ppo"))
    assert drawn[0] == 1
    assert 7 <= drawn[-1] <= 9
    sink.close()
    frame = output.getvalue()
    assert "10,000/10,000 env steps" in frame
    assert "200.00" in frame


def test_drawing_that_takes_long_is_done_less_often(monkeypatch):
    sink, clock, output = make(terminal=True)
    frame = sink._frame

    def slow_frame():
        clock.now += 0.05
        return frame()

    monkeypatch.setattr(sink, "_frame", slow_frame)
    for index in range(1, 1001):
        clock.now += 0.01
        sink.log(row(index), index)
    assert output.getvalue().count("CartPole-v1:ppo") <= 4
    sink.close()


def test_epochs_between_two_drawings_are_in_the_sparkline():
    sink, clock, _ = make(terminal=True)
    for index in range(40):
        clock.now = index * 0.01
        sink.log(row(index, train=float(index)), index)
    sink.close()
    assert len(sink.table.histories[episode_return("train")].means) == 40


def test_quiet_shows_nothing_but_the_report():
    for terminal in (True, False):
        sink, _, output = make(terminal=terminal, quiet=True)
        sink.set_phase("ppo")
        sink.log(row(1000, train=1.0, val=2.0), 1000)
        sink.notice("hello")
        sink.show("hello")
        sink.checkpoint("hello")
        assert output.getvalue() == ""
        sink.report(REPORT)
        sink.close()
        assert "500.0" in output.getvalue()


def test_phase_goal_and_notices_are_shown():
    sink, clock, output = make(terminal=True, threshold=475)
    sink.set_phase("warmup")
    sink.notice("[brackets] are text")
    clock.now = 1.0
    sink.log(row(1000), 1000)
    text = output.getvalue()
    assert "warmup" in text
    assert "goal 475" in text
    assert "[brackets] are text" in text
    sink.close()


def test_checkpoint_lines_go_to_pipes_unless_quieted(monkeypatch):
    monkeypatch.delenv("VIBES_QUIET", raising=False)
    monkeypatch.delenv("VIBES_DISABLE_CHECKPOINT_LOGS", raising=False)
    sink, _, output = make(terminal=False)
    sink.checkpoint("checkpoint epoch=0012.ckpt")
    monkeypatch.setenv("VIBES_QUIET", "1")
    sink.checkpoint("checkpoint epoch=0013.ckpt")
    assert output.getvalue() == "checkpoint epoch=0012.ckpt\n"


def test_nothing_is_drawn_after_the_report():
    sink, clock, output = make(terminal=True)
    sink.log(row(1000), 1000)
    sink.report(REPORT)
    before = output.getvalue()
    clock.now = 100.0
    sink.log(row(2000), 2000)
    sink.set_phase("late")
    sink.close()
    assert output.getvalue() == before


def test_progress_without_a_budget_and_over_it():
    clock = Clock()
    free = Progress("x", None, None, clock)
    free.advance(5, 1)
    assert free.text() == "5 env steps  epoch 1"
    bounded = Progress("x", 100, None, clock)
    bounded.advance(60, 1)
    clock.now = 2.0
    bounded.advance(100, 2)
    assert bounded.text() == "100%  100/100 env steps  20/s  epoch 2"


@pytest.mark.parametrize("width", [20, 40, 80, 140])
def test_the_head_fits_its_width(width):
    progress = Progress("a-very-long-experiment-name:with-a-variant", 1_000_000, 475, Clock())
    progress.phase = "evaluation 40/100"
    progress.advance(123_456, 12)
    for line in progress.lines(width, ascii_only=False):
        assert sum(len(segment.text) for segment in line) <= width


ALERT = Alert("kl_high", "train/opt/ppo/approx_kl", "approx_kl [0.2] is above 0.05.", "Lower policy_lr.", 1280, 5)


def test_an_alert_is_one_line_in_a_pipe_and_a_block_on_a_terminal():
    sink, _, output = make(terminal=False)
    sink.alert(ALERT)
    line = "alert kl_high at 1,280 env steps: approx_kl [0.2] is above 0.05. Tip: Lower policy_lr.\n"
    assert output.getvalue() == line
    sink, _, output = make(terminal=True)
    sink.alert(ALERT)
    assert [line.rstrip() for line in output.getvalue().splitlines()] == [
        "! kl_high  epoch 5, 1,280 env steps",
        "  approx_kl [0.2] is above 0.05.",
        "  tip: Lower policy_lr.",
    ]
    sink, _, output = make(terminal=True, quiet=True)
    sink.alert(ALERT)
    assert output.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_warnings_of_any_module_are_shown_without_their_secrets(terminal, monkeypatch):
    sink, _, output = make(terminal)
    logger = logging.getLogger("gymlab.envs.anything")
    logger.warning("environment %d failed with api_key=sk-1234567890abcdef1234", 3)
    sink.close()
    logger.warning("too late")
    assert "environment 3 failed" in output.getvalue()
    assert "1234567890abcdef" not in output.getvalue()
    assert "too late" not in output.getvalue()


def test_quiet_keeps_warnings_to_the_log():
    sink, _, output = make(terminal=False, quiet=True)
    logging.getLogger("gymlab").warning("nothing to see")
    sink.close()
    assert output.getvalue() == ""


def test_an_alert_is_shown_once_though_run_log_has_it_too(tmp_path):
    sink, _, output = make(terminal=False)
    log = RunLogSink(tmp_path / "run.log")
    with Monitor([log, sink]) as monitor:
        monitor.alert(ALERT)
    assert output.getvalue().count("kl_high") == 1
    assert "alert kl_high at epoch 5" in (tmp_path / "run.log").read_text()
