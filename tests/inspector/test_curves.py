"""Curves, intervals and marks against the files, read with the csv module and computed apart."""

import csv
import json
import time

import numpy as np
import pytest
from run_makers import make_run

from gymlab.engine.changes import Change, ChangeLog
from gymlab.inspector.routes import HttpError, Inspector
from gymlab.inspector.table import AT_ONCE_BYTES
from gymlab.metrics.statistics import estimate

STEPS, WALL, RETURN = "train/cnt/env_steps", "sys/time/wall", "train/roll/ep_rew/mean"


def column(run, name, against=STEPS):
    with (run / "metrics.csv").open() as file:
        rows = [(float(row[against]), float(row[name])) for row in csv.DictReader(file) if row[name]]
    return [x for x, _ in rows], [y for _, y in rows]


@pytest.mark.parametrize(("axis", "against"), [("env_steps", STEPS), ("time", WALL)])
@pytest.mark.parametrize("name", [RETURN, "val/roll/ep_rew/mean", "train/loss/value"])
def test_a_curve_is_what_the_file_has(call, runs, name, axis, against):
    answer = call("/api/runs/cartpole-s1/curves", metric=[name], axis=axis)
    x, y = column(runs / "cartpole-s1", name, against)
    assert answer["exact"]
    assert len(x) > 2
    assert answer["series"][name]["x"] == pytest.approx(x, rel=1e-8)
    assert answer["series"][name]["y"] == pytest.approx(y, rel=1e-8)
    assert "low" not in answer["series"][name]


def test_metrics_come_in_the_order_of_the_console_with_their_meaning(call, runs):
    found = call("/api/runs/cartpole-s1/metrics")["metrics"]
    header = (runs / "cartpole-s1" / "metrics.csv").read_text().partition("\n")[0].split(",")
    assert sorted(metric["name"] for metric in found) == sorted(header)
    assert found[0] == {
        "name": "val/roll/ep_rew/mean",
        "group": "val/roll",
        "about": "Mean return of the evaluation's episodes",
        "highlight": True,
    }


def test_many_rows_come_in_buckets(call, tmp_path):
    returns = np.random.default_rng(1).normal(size=1000)
    lines = "".join(f"{index * 10},{value!r}\n" for index, value in enumerate(returns.tolist()))
    make_run(tmp_path, "long", metrics=f"{STEPS},{RETURN}\n{lines}")
    series = call("/api/runs/long/curves", inspector=Inspector(tmp_path), metric=[RETURN], points=50)["series"][RETURN]
    groups = returns.reshape(50, 20)
    assert series["y"] == pytest.approx(groups.mean(axis=1))
    assert series["low"] == pytest.approx(groups.min(axis=1))
    assert series["high"] == pytest.approx(groups.max(axis=1))
    assert series["x"] == pytest.approx(np.arange(0, 10000, 10).reshape(50, 20).mean(axis=1))


def test_a_page_that_has_some_rows_gets_the_new_ones_alone(call, tmp_path):
    run = make_run(tmp_path, "live", metrics=f"{STEPS},{RETURN}\n10,1.0\n20,2.0\n")
    inspector = Inspector(tmp_path)
    first = call("/api/runs/live/curves", inspector=inspector, metric=[RETURN])
    assert (first["from"], first["rows"]) == (0, 2)
    with (run.dir / "metrics.csv").open("a") as file:
        file.write("30,3.0\n40,4")
    known = {"since": first["rows"], "version": first["version"]}
    second = call("/api/runs/live/curves", inspector=inspector, metric=[RETURN], **known)
    assert (second["from"], second["rows"]) == (2, 3)
    assert second["series"][RETURN] == {"x": [30.0], "y": [3.0]}
    other = call("/api/runs/live/curves", inspector=inspector, metric=[RETURN], since=2, version="0")
    assert (other["from"], other["series"][RETURN]["x"]) == (0, [10.0, 20.0, 30.0])


def test_a_zoom_shows_the_rows_of_that_range_alone(call, tmp_path):
    lines = "".join(f"{index},{index * 2}\n" for index in range(1000))
    make_run(tmp_path, "long", metrics=f"{STEPS},{RETURN}\n{lines}")
    inspector = Inspector(tmp_path)
    series = call("/api/runs/long/curves", inspector=inspector, metric=[RETURN], points=50, start="100", end="139.5")
    assert series["series"][RETURN]["x"] == [float(x) for x in range(100, 140)]
    with pytest.raises(HttpError, match="start is a number"):
        call("/api/runs/long/curves", inspector=inspector, metric=[RETURN], start="nan")


def test_a_long_file_is_sampled_at_first_and_exact_in_the_end(call, tmp_path):
    rows = 60_000
    values = np.random.default_rng(2).normal(size=rows)
    lines = "".join(f"{index},{index / 10},{value!r},{value!r}\n" for index, value in enumerate(values.tolist()))
    run = make_run(tmp_path, "long", metrics=f"{STEPS},{WALL},{RETURN},train/loss/value\n{lines}")
    assert (run.dir / "metrics.csv").stat().st_size > AT_ONCE_BYTES
    inspector = Inspector(tmp_path)
    first = call("/api/runs/long/curves", inspector=inspector, metric=[RETURN], points=100)
    assert not first["exact"]
    assert 0 <= first["read"] < 1
    end = time.monotonic() + 20
    while not (last := call("/api/runs/long/curves", inspector=inspector, metric=[RETURN], points=100))["exact"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert last["rows"] == rows
    assert last["series"][RETURN]["y"] == pytest.approx(values.reshape(100, 600).mean(axis=1), rel=1e-6)
    assert max(last["series"][RETURN]["high"]) == pytest.approx(values.max())


def test_the_mean_over_seeds_has_their_range_and_from_five_on_the_interval(call, runs, tmp_path):
    ends = {"a": 3.0, "b": 5.0, "c": 7.0, "d": 4.0, "e": 9.0}
    for seed, (name, value) in enumerate(ends.items()):
        make_run(tmp_path, name, seed=seed, metrics=f"{STEPS},{RETURN}\n800,{value - 2}\n1600,{value}\n")

    def bands(*runs):
        answer = call("/api/bands", inspector=Inspector(tmp_path), run=list(runs), metric=[RETURN])
        (group,) = answer["groups"]
        assert (group["runs"], answer["notes"], answer["exact"]) == (list(runs), [], True)
        return group["bands"][RETURN]

    few = bands("a", "b", "c")
    assert few["n"] == 3
    assert few["x"][-1] == 1600
    assert few["y"][0] == pytest.approx(3.0)
    assert few["y"][-1] == pytest.approx(5.0)
    assert (few["low"][-1], few["high"][-1], few["words"]) == (3.0, 7.0, "range")
    band = bands(*ends)
    assert [band["low"][-1], band["high"][-1]] == pytest.approx(estimate(list(ends.values())).ci95)
    assert band["words"] == "95% interval"
    assert "low" not in bands("a")


def test_runs_with_other_settings_are_no_seeds_and_the_same_seed_counts_once(call, tmp_path):
    lines = f"{STEPS},{RETURN}\n800,1\n1600,2\n"
    for name, seed, settings in (("a", 0, 0.1), ("again", 0, 0.1), ("b", 1, 0.1), ("other", 2, 1.0)):
        make_run(tmp_path, name, seed=seed, config={"policy_lr": settings}, metrics=lines)
    answer = call("/api/bands", inspector=Inspector(tmp_path), run=["a", "again", "b", "other"], metric=[RETURN])
    assert {group["label"]: len(group["runs"]) for group in answer["groups"]} == {
        "CartPole-v1:ppo, policy_lr=0.1": 2,
        "CartPole-v1:ppo, policy_lr=1": 1,
    }
    assert "2 groups here, by policy_lr." in answer["notes"][0]
    assert "run of the same seed and settings" in answer["notes"][1]


def test_marks_have_a_place_on_both_axes(call, tmp_path):
    run = make_run(tmp_path, "marked", metrics=f"{STEPS},{WALL}\n0,0.0\n100,10.0\n")
    recap = {"id": "kl_high", "metric": "m", "message": "it is high", "tip": "lower it", "first_env_steps": 50}
    recap |= {"last_env_steps": 80, "first_epoch": 1, "last_epoch": 2, "count": 1, "epochs": 2}
    (run.dir / "alerts.json").write_text(json.dumps([recap]))
    wish = Change("policy_lr", 0.1, "gymlab set", 5.0, before=0.2)
    made = Change("policy_lr", 0.1, "gymlab set", 6.0, before=0.2, epoch=3, env_steps=25, asked=5.0)
    later = Change("ent_coef", 0.0, "gymlab set", 7.0, before=0.01)
    ChangeLog(run.dir).append([wish, made, later])
    found = call("/api/runs/marked/marks", inspector=Inspector(tmp_path))
    assert found["alerts"] == [{**recap, "seconds": 5.0}]
    assert found["changes"] == [
        {
            "name": "policy_lr",
            "text": "policy_lr: 0.2 → 0.1",
            "source": "gymlab set",
            "time": 6.0,
            "env_steps": 25,
            "seconds": 2.5,
        }
    ]
    assert found["waiting"] == ["ent_coef: 0"]
    assert found["problems"] == []


def test_damaged_marks_are_told_and_the_rest_is_shown(call, tmp_path):
    run = make_run(tmp_path, "torn", metrics=f"{STEPS},{WALL}\n0,0.0\n")
    (run.dir / "alerts.json").write_text("[{")
    (run.dir / "changes.jsonl").write_text("{}\n")
    found = call("/api/runs/torn/marks", inspector=Inspector(tmp_path))
    assert (found["alerts"], found["changes"]) == ([], [])
    assert [problem.partition(" cannot")[0] for problem in found["problems"]] == [
        "The alerts of torn",
        "The changes of torn",
    ]


def test_a_run_without_metrics_has_empty_curves(call):
    answer = call("/api/runs/half-written/curves", metric=[RETURN])
    assert answer["series"] == {}
    assert call("/api/runs/half-written/metrics") == {"metrics": []}
    assert call("/api/runs/half-written/marks")["alerts"] == []
    assert call("/api/runs/cartpole-s1/curves", metric=["no/such"])["series"] == {}
