"""Alerts in a run: columns, alerts.json, report, and the same of all of them after a resume."""

import json

import pytest

import gymlab
from gymlab.engine.callbacks.alerts import ALERTS_FILE, read_alerts
from gymlab.errors import CheckpointError
from gymlab.metrics.alerts import KINDS

LOUD = {
    "n_envs": 8,
    "n_steps": 32,
    "batch_size": 64,
    "n_epochs": 4,
    "policy_lr": 0.05,
    "max_env_steps": 16 * 256,
    "seed": 7,
    "quiet": True,
    "video": False,
    "eval_freq_epochs": 2,
    "eval_episodes": 2,
    "eval_max_episode_steps": 20,
    "early_stop_on_eval_threshold": False,
    "keep_checkpoints": 9,
}
"""A learning rate that no policy survives."""


def columns(run):
    return {name: values for name, values in run.metrics.items() if name.startswith("train/alerts/")}


def first_epoch(run):
    """Epoch whose mean of five KLs is the first above its bound, read off the metrics; the checkpoint of epoch 6 is to have seen it."""
    kl, bound = run.metrics["train/opt/ppo/approx_kl"], 0.05
    found = next(epoch for epoch in range(5, 7) if sum(kl[epoch - 5 : epoch]) / 5 > bound)
    assert columns(run)["train/alerts/kl_high"][:found] == [None] * (found - 1) + [1.0]
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    whole = gymlab.train("CartPole-v1:ppo", runs_dir=directory, run_id="whole", **LOUD)
    gymlab.train("CartPole-v1:ppo", runs_dir=directory, run_id="cut", **LOUD)
    return directory, whole


def test_an_alert_is_in_the_metrics_the_log_the_report_and_alerts_json(runs):
    _, whole = runs
    alerts = {alert.id: alert for alert in read_alerts(whole.dir)}
    high = alerts["kl_high"]
    assert high.metric == "train/opt/ppo/approx_kl"
    first = first_epoch(whole)
    assert high.first_epoch == first
    assert high.first_env_steps == first * 256
    assert high.tip == KINDS["kl_high"].tip
    column = columns(whole)["train/alerts/kl_high"]
    assert column.count(1.0) == high.epochs
    report = (whole.dir / "report.md").read_text()
    assert "## Alerts" in report
    for part in (f"| `kl_high` | {first * 256:,} to {high.last_env_steps:,} |", high.message, high.tip):
        assert part in report
    logged = f"INFO    alert kl_high at epoch {first}, {first * 256:,} env steps: {high.message} Tip:"
    assert logged in (whole.dir / "run.log").read_text()


@pytest.mark.parametrize("epoch", [4, 8])
def test_a_resumed_run_has_the_same_alerts(runs, epoch):
    """Back to before the first alert, and into the middle of one: what came after is given up and comes again the same."""
    directory, whole = runs
    resumed = gymlab.resume("cut", epoch=epoch, runs_dir=directory)
    assert columns(resumed) == columns(whole)
    assert read_alerts(resumed.dir) == read_alerts(whole.dir)


def test_a_resumed_run_without_alerts_keeps_those_before_it(runs, tmp_path):
    _, whole = runs
    directory = tmp_path / "runs"
    gymlab.train("CartPole-v1:ppo", runs_dir=directory, run_id="off", **LOUD)
    resumed = gymlab.resume("off", epoch=6, runs_dir=directory, alerts=False)
    assert "Changed: alerts: True -> False" in (resumed.dir / "report.md").read_text()
    (alert,) = [alert for alert in read_alerts(resumed.dir) if alert.id == "kl_high"]
    assert (alert.first_epoch, alert.last_epoch) == (first_epoch(whole), 6)
    assert columns(resumed)["train/alerts/kl_high"] == columns(whole)["train/alerts/kl_high"][:6] + [None] * 10
    earlier = gymlab.resume("off", epoch=4, runs_dir=directory, alerts=False)
    assert read_alerts(earlier.dir) == []
    assert columns(earlier) == {}
    assert "## Alerts" not in (earlier.dir / "report.md").read_text()


def test_a_damaged_file_is_named(tmp_path):
    assert read_alerts(tmp_path) == []
    (tmp_path / ALERTS_FILE).write_text(json.dumps([])[:1])
    with pytest.raises(CheckpointError, match=ALERTS_FILE):
        read_alerts(tmp_path)
