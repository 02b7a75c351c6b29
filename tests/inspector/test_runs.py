"""The list of runs: what it says of each, and that a broken one breaks nothing."""

import csv
import json
import os
import shutil

import pytest
from run_makers import make_run

from gymlab.engine.lock import run_lock
from gymlab.inspector import runs as module
from gymlab.inspector.routes import Inspector

pytestmark = pytest.mark.xdist_group("browser")


def listed(answer):
    return {run["id"]: run for run in answer["runs"]}


def test_every_run_is_listed_with_what_its_files_say(call, runs):
    found = listed(call("/api/runs"))
    assert set(found) == {"cartpole-s1", "cartpole-s2", "lake", "pixels", "corrupt", "half-written"}
    record = json.loads((runs / "cartpole-s1" / "run.json").read_text())
    one = found["cartpole-s1"]
    assert (one["status"], one["experiment"], one["algo"], one["seed"]) == ("finished", "CartPole-v1:ppo", "ppo", 1)
    assert one["env_steps"] == one["budget"] == 2048
    assert one["score"]["source"] == "test"
    assert one["score"]["mean"] == record["result"]["mean"]
    assert one["score"]["ci95"] == record["result"]["ci95"]
    assert one["started"] == record["started"]


def test_the_small_curve_is_the_training_return(call, runs):
    with (runs / "cartpole-s1" / "metrics.csv").open() as file:
        returns = [
            float(row["train/roll/ep_rew/mean"]) for row in csv.DictReader(file) if row["train/roll/ep_rew/mean"]
        ]
    shown = listed(call("/api/runs"))["cartpole-s1"]["sparkline"]
    assert shown == pytest.approx(returns, rel=1e-4)


def test_corrupt_and_half_written_runs_say_so(call):
    found = listed(call("/api/runs"))
    assert found["corrupt"]["status"] == "damaged"
    assert "run.json is not valid JSON" in found["corrupt"]["reason"]
    assert found["half-written"]["status"] == "incomplete"
    assert found["half-written"]["reason"] == "its creation was cut short"


def test_a_list_that_was_seen_is_not_sent_again(call):
    first = call("/api/runs")
    assert call("/api/runs", seen=first["version"]) == {"unchanged": True, "version": first["version"]}
    assert "runs" in call("/api/runs", seen="other")


def test_a_run_is_read_again_only_when_a_file_changed_or_while_it_trains(call, tmp_path, monkeypatch):
    for name in ("one", "two"):
        make_run(tmp_path, name, metrics="train/cnt/env_steps,train/roll/ep_rew/mean\n10,1.0\n20,2.0\n")
    read = []
    original = module.read_row
    monkeypatch.setattr(module, "read_row", lambda run: read.append(run.id) or original(run))
    inspector = Inspector(tmp_path)
    before = call("/api/runs", inspector=inspector)
    assert listed(before)["one"]["sparkline"] == [1.0, 2.0]
    read.clear()
    assert call("/api/runs", inspector=inspector, seen=before["version"])["unchanged"]
    assert read == []
    record = tmp_path / "two" / "run.json"
    record.write_text(
        json.dumps(json.loads(record.read_text()) | {"status": "stopped", "reason": "stopped by SIGTERM"})
    )
    after = call("/api/runs", inspector=inspector, seen=before["version"])
    assert read == ["two"]
    assert listed(after)["two"]["status"] == "stopped"
    with run_lock(tmp_path / "one"):
        os.utime(tmp_path / "one")
        assert listed(call("/api/runs", inspector=inspector))["one"]["status"] == "running"
    assert listed(call("/api/runs", inspector=inspector))["one"]["status"] == "finished"


def test_runs_without_a_final_evaluation_show_what_they_have(call, tmp_path):
    make_run(tmp_path, "best", best_return=12.5)
    make_run(
        tmp_path,
        "train",
        status="crashed",
        counters={},
        metrics="train/cnt/env_steps,train/roll/ep_rew/mean\n10,7.25\n",
    )
    make_run(tmp_path, "nothing")
    found = listed(call("/api/runs", inspector=Inspector(tmp_path)))
    assert found["best"]["score"] == {"mean": 12.5, "source": "best"}
    assert found["train"]["score"] == {"mean": 7.25, "source": "train"}
    assert found["nothing"]["score"] is None
    assert found["nothing"]["sparkline"] == []


def test_alerts_are_counted_and_a_damaged_file_of_them_is_no_end(call, runs, tmp_path):
    recap = {"id": "kl_high", "metric": "m", "message": "x", "tip": "y", "first_env_steps": 1, "last_env_steps": 2}
    recap |= {"first_epoch": 1, "last_epoch": 2, "count": 1, "epochs": 2}
    for name, text in (("two", json.dumps([recap, recap])), ("torn", "[{"), ("odd", '[{"id": 1}]')):
        make_run(tmp_path, name)
        (tmp_path / name / "alerts.json").write_text(text)
    found = listed(call("/api/runs", inspector=Inspector(tmp_path)))
    assert (found["two"]["alerts"], found["torn"]["alerts"], found["odd"]["alerts"]) == (2, None, None)


def test_an_empty_or_missing_directory_is_an_empty_list(call, tmp_path):
    assert call("/api/runs", inspector=Inspector(tmp_path))["runs"] == []
    assert call("/api/runs", inspector=Inspector(tmp_path / "none"))["runs"] == []


def test_a_run_that_vanishes_is_gone_from_the_list(call, tmp_path):
    make_run(tmp_path, "one")
    inspector = Inspector(tmp_path)
    assert len(call("/api/runs", inspector=inspector)["runs"]) == 1
    shutil.rmtree(tmp_path / "one")
    assert call("/api/runs", inspector=inspector)["runs"] == []
