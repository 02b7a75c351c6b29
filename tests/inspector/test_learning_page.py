"""Tab Learning in a real browser: what is shown against numbers computed apart from it, and a run that is changed while it trains."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from run_makers import make_run

from gymlab.engine.changes import ChangeLog

STEPS, RETURN, VALUE = "train/cnt/env_steps", "train/roll/ep_rew/mean", "train/loss/value"


def column(run, name, against=STEPS):
    with (run / "metrics.csv").open() as file:
        rows = [(float(row[against]), float(row[name])) for row in csv.DictReader(file) if row[name]]
    return np.array([x for x, _ in rows]), np.array([y for _, y in rows])


def chart(page, name):
    return page.locator(f'[data-metric="{name}"]')


def saved(page):
    """The rows of the CSV that the page gives."""
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    return list(csv.DictReader(io.StringIO(download.value.path().read_text())))


def open_learning(wait_until, page, server, runs, **params):
    query = "".join(f"&{name}={value}" for name, value in params.items())
    page.goto(f"{server.url}#learning?runs={','.join(runs)}{query}")
    page.locator(".chart-grid .chart").first.wait_for()
    wait_until(page, "![...document.querySelectorAll('.chart-note')].some((note) => note.textContent === 'Reading …')")


def test_the_curve_and_its_readout_are_those_of_the_file(server, page, runs, wait_until):
    open_learning(wait_until, page, server, ["cartpole-s1"], m=RETURN)
    x, y = column(runs / "cartpole-s1", RETURN)
    rows = saved(page)
    np.testing.assert_allclose([float(row["env_steps"]) for row in rows], x)
    np.testing.assert_allclose([float(row["value"]) for row in rows], y, rtol=1e-8)
    plot = chart(page, RETURN).locator(".plot")
    plot.focus()
    page.keyboard.press("ArrowLeft")
    readout = chart(page, RETURN).locator(".tooltip").inner_text()
    assert f"{int(x[-1]):,} env steps" in readout
    assert float(readout.rpartition("cartpole-s1")[2].replace(",", "")) == pytest.approx(y[-1], rel=1e-5)
    page.keyboard.press("ArrowLeft")
    assert f"{int(x[-2]):,} env steps" in chart(page, RETURN).locator(".tooltip").inner_text()
    box = plot.bounding_box()
    plot.hover(position={"x": box["width"] - 13, "y": 60})
    assert f"{int(x[-1]):,} env steps" in chart(page, RETURN).locator(".tooltip").inner_text()


def test_metrics_are_found_and_drawn_beside_each_other(server, page, runs, wait_until):
    open_learning(wait_until, page, server, ["cartpole-s1", "cartpole-s2"], m=RETURN)
    page.get_by_label("Find a metric").fill("loss val")
    page.get_by_label("value", exact=True).check()
    chart(page, VALUE).wait_for()
    assert page.locator(".chart-grid .chart").count() == 2
    wait_until(page, f"document.querySelector('[data-metric=\"{VALUE}\"] .chart-note').hidden")
    rows = [row for row in saved(page) if row["metric"] == VALUE]
    for run in ("cartpole-s1", "cartpole-s2"):
        np.testing.assert_allclose(
            [float(row["value"]) for row in rows if row["run"] == run], column(runs / run, VALUE)[1], rtol=1e-8
        )
    assert f"m={RETURN},{VALUE}" in page.url
    page.reload()
    chart(page, VALUE).wait_for()
    page.get_by_label("value", exact=True).uncheck()
    chart(page, VALUE).wait_for(state="detached")


def test_time_smoothing_and_log_scale(server, page, runs, wait_until):
    open_learning(wait_until, page, server, ["cartpole-s1"], m=RETURN)
    page.get_by_role("button", name="time", exact=True).click()
    wait_until(page, "location.hash.includes('x=time')")
    seconds, y = column(runs / "cartpole-s1", RETURN, "sys/time/wall")
    page.get_by_label("Smoothing").fill("0.9")
    page.get_by_role("button", name="log scale").click()
    assert "smooth=0.9" in page.url
    assert "log=1" in page.url
    page.wait_for_timeout(500)
    rows = saved(page)
    np.testing.assert_allclose([float(row["seconds"]) for row in rows], seconds, rtol=1e-8)
    np.testing.assert_allclose([float(row["raw"]) for row in rows], y, rtol=1e-8)
    weights = 0.1 * 0.9 ** np.arange(len(y))
    expected = [np.dot(weights[: k + 1], y[k::-1]) / weights[: k + 1].sum() for k in range(len(y))]
    np.testing.assert_allclose([float(row["value"]) for row in rows], expected, rtol=1e-6)


def test_the_mean_over_seeds_with_its_interval(start_server, page, tmp_path, wait_until):
    ends = {"a": 3.0, "b": 5.0, "c": 10.0}
    for seed, (name, end) in enumerate(ends.items()):
        make_run(tmp_path, name, seed=seed, metrics=f"{STEPS},{RETURN}\n500,{end / 2}\n1000,{end}\n")
    open_learning(wait_until, page, start_server(tmp_path), ["a", "b", "c"], m=RETURN)
    page.get_by_role("button", name="mean over seeds").click()
    wait_until(page, "document.querySelector('.plot').getAttribute('aria-label').includes('mean of 3')")
    last = [row for row in saved(page) if row["run"] == "CartPole-v1:ppo"][-1]
    assert float(last["env_steps"]) == 1000
    assert float(last["value"]) == pytest.approx(6.0)
    assert (float(last["low"]), float(last["high"])) == (3.0, 10.0)


def test_the_mean_over_seeds_leaves_other_settings_apart_and_says_which(start_server, page, tmp_path, wait_until):
    for seed, (name, end) in enumerate({"a": 3.0, "b": 5.0, "other": 90.0}.items()):
        settings = {"policy_lr": 1.0 if name == "other" else 0.1}
        make_run(tmp_path, name, seed=seed, config=settings, metrics=f"{STEPS},{RETURN}\n500,{end / 2}\n1000,{end}\n")
    open_learning(wait_until, page, start_server(tmp_path), ["a", "b", "other"], m=RETURN)
    page.get_by_role("button", name="mean over seeds").click()
    wait_until(page, "document.querySelector('.plot').getAttribute('aria-label').includes('mean of 2')")
    assert "by policy_lr" in page.locator(".notes").inner_text()
    last = [row for row in saved(page) if row["run"] == "CartPole-v1:ppo, policy_lr=0.1"][-1]
    assert float(last["value"]) == pytest.approx(4.0)


def test_alerts_are_marked_with_message_and_tip(start_server, page, tmp_path, runs, wait_until):
    shutil.copytree(runs / "cartpole-s1", tmp_path / "one", symlinks=True)
    recap = {"id": "kl_high", "metric": VALUE, "message": "It is 0.09, above 0.05.", "tip": "Lower policy_lr."}
    recap |= {
        "first_env_steps": 512,
        "last_env_steps": 1024,
        "first_epoch": 2,
        "last_epoch": 4,
        "count": 2,
        "epochs": 3,
    }
    (tmp_path / "one" / "alerts.json").write_text(json.dumps([recap]))
    open_learning(wait_until, page, start_server(tmp_path), ["one"], m=RETURN)
    mark = chart(page, RETURN).locator(".mark.alert")
    mark.wait_for()
    plot = chart(page, RETURN).locator(".plot").bounding_box()
    centre = mark.bounding_box()["x"] + mark.bounding_box()["width"] / 2 - plot["x"]
    assert centre == pytest.approx(54 + 512 / 2048 * (plot["width"] - 54 - 12), abs=2)
    mark.focus()
    tooltip = chart(page, RETURN).locator(".tooltip").inner_text()
    assert "It is 0.09, above 0.05." in tooltip
    assert "Lower policy_lr." in tooltip
    events = page.get_by_label("Alerts and changes").inner_text()
    assert "512 – 1,024" in events
    assert "twice, 3 epochs in all" in events
    page.get_by_label("Alerts and changes").get_by_role("button", name=VALUE).click()
    chart(page, VALUE).wait_for()


def test_a_part_of_the_axis_is_looked_at_by_dragging(server, page, runs, wait_until):
    open_learning(wait_until, page, server, ["cartpole-s1"], m=RETURN)
    box = chart(page, RETURN).locator(".plot").bounding_box()
    width = box["width"] - 54 - 12
    page.mouse.move(box["x"] + 54 + 0.5 * width, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 54 + 0.8 * width, box["y"] + 110, steps=4)
    page.mouse.up()
    wait_until(page, "location.hash.includes('zoom=')")
    page.wait_for_timeout(400)
    steps = [float(row["env_steps"]) for row in saved(page)]
    x, _ = column(runs / "cartpole-s1", RETURN)
    assert steps == [step for step in x if 1024 <= step <= 1639]
    page.get_by_role("button", name="Whole axis").click()
    wait_until(page, "!location.hash.includes('zoom=')")


def test_a_run_that_cannot_be_read_leaves_the_others_alone(start_server, page, tmp_path, runs, wait_until):
    shutil.copytree(runs / "cartpole-s1", tmp_path / "good", symlinks=True)
    make_run(tmp_path, "odd", metrics=f"{STEPS},{RETURN}\n10,1.0\nx,y,z\n30,3.0\n")
    (tmp_path / "odd" / "changes.jsonl").write_text("{}\n")
    open_learning(wait_until, page, start_server(tmp_path), ["good", "odd", "gone"], m=RETURN)
    page.get_by_text("odd: 1 damaged line of metrics.csv left out.").wait_for()
    page.get_by_text("gone is not in the list of runs any more.").wait_for()
    page.get_by_text("The changes of odd cannot be read").wait_for()
    rows = saved(page)
    assert [float(row["value"]) for row in rows if row["run"] == "odd"] == [1.0, 3.0]
    assert len([row for row in rows if row["run"] == "good"]) > 3


@pytest.fixture
def training(tmp_path):
    """A run that trains until the test is over."""
    words = [
        "CartPole-v1:ppo",
        "max_env_steps=50000000",
        "n_envs=8",
        "n_steps=64",
        "batch_size=128",
        "n_epochs=4",
        "policy_lr=1e-3",
    ]
    words += ["eval_freq_epochs=null", "eval_episodes=1", "video=false", "early_stop_on_eval_threshold=false", "-q"]
    command = [sys.executable, "-m", "gymlab", "train", *words, "--runs-dir", str(tmp_path), "--run-id", "live"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ)
    end = time.monotonic() + 60
    while not (tmp_path / "live" / "metrics.csv").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.1)
    yield tmp_path / "live"
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_run_is_watched_and_changed_while_it_trains(start_server, page, training, wait_until):
    server = start_server(training.parent)
    page.goto(server.url)
    page.locator('tr[data-run="live"] .pill.running').wait_for()
    page.get_by_role("button", name="live", exact=True).click()
    page.get_by_label("New value of policy_lr").wait_for(timeout=40_000)
    label = f"document.querySelector('[data-metric=\"{RETURN}\"] .plot').getAttribute('aria-label')"
    chart(page, RETURN).wait_for()
    page.wait_for_event("requestfinished", lambda request: "since=" in request.url)
    before = page.evaluate(label)
    wait_until(page, f"{label} !== {json.dumps(before)}")

    page.get_by_label("New value of policy_lr").fill("-1")
    page.get_by_role("button", name="Change", exact=True).click()
    page.get_by_text("must not be negative").wait_for()
    page.get_by_label("New value of policy_lr").fill("2e-4")
    page.get_by_role("button", name="Change", exact=True).click()
    chart(page, RETURN).locator(".mark.change").wait_for()
    made = [change for change in ChangeLog(training).read() if change.epoch is not None]
    assert [(change.name, change.to, change.source) for change in made] == [("policy_lr", 0.0002, "gymlab set")]
    page.get_by_text(f"policy_lr: 0.001 → 0.0002 at {made[0].env_steps:,} env steps").first.wait_for()
    chart(page, RETURN).locator(".mark.change").focus()
    assert "policy_lr: 0.001 → 0.0002" in chart(page, RETURN).locator(".tooltip").inner_text()
    page.get_by_label("Find a metric").fill("policy_lr")
    page.get_by_label("policy_lr", exact=True).check()
    wait_until(
        page,
        "document.querySelector('[data-metric=\"train/policy_lr\"] .plot')?.getAttribute('aria-label').includes('2e-4')",
    )


def test_the_readout_says_nothing_of_a_run_that_has_ended_there(start_server, page, tmp_path, wait_until):
    make_run(tmp_path, "short", metrics=f"{STEPS},{RETURN}\n100,1.5\n200,2.5\n")
    make_run(tmp_path, "long", metrics=f"{STEPS},{RETURN}\n100,10.5\n200,20.5\n1000,30.5\n")
    open_learning(wait_until, page, start_server(tmp_path), ["short", "long"], m=RETURN)
    plot = chart(page, RETURN).locator(".plot")
    box = plot.bounding_box()
    at = {share: {"x": 54 + share * (box["width"] - 66), "y": 200} for share in (0.2, 0.7, 1.0)}
    readout = chart(page, RETURN).locator(".tooltip")
    plot.hover(position=at[0.2])
    assert "200 env steps" in readout.inner_text()
    assert "2.5" in readout.inner_text()
    assert "20.5" in readout.inner_text()
    plot.hover(position=at[1.0])
    assert "short" not in readout.inner_text()
    assert "30.5" in readout.inner_text()
    plot.hover(position=at[0.7])
    assert "30.5 at 1,000" in " ".join(readout.inner_text().split())


@pytest.mark.parametrize(("low", "high", "expected"), [(-0.15, 0.11, [-0.1, 0, 0.1]), (0, 10, [0, 5, 10]), (1, 1, [1])])
def test_an_axis_has_two_numbers_at_least(server, page, low, high, expected):
    page.goto(server.url)
    assert page.evaluate(f"import('/static/charts.js').then((charts) => charts.ticks({low}, {high}, 2))") == expected
