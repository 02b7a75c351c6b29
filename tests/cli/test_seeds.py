"""Several seeds: how they are named, run, summed up and stopped."""

import signal
import subprocess
import sys

import pytest

from gymlab.cli import seeds
from gymlab.cli.seeds import SeedRun, parse_seeds, summarize
from gymlab.engine.run import Run, all_runs
from gymlab.errors import GymlabError
from gymlab.metrics.results import return_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", [0]), ("0-4", [0, 1, 2, 3, 4]), ("0-2,7", [0, 1, 2, 7]), ("3, 1", [3, 1])],
)
def test_parse_seeds(text, expected):
    assert parse_seeds(text) == expected


@pytest.mark.parametrize("text", ["", "a", "4-2", "-1", "1,,2", "0..4"])
def test_what_is_no_list_of_seeds(text):
    with pytest.raises(GymlabError, match="--seeds 0-4,7"):
        parse_seeds(text)


@pytest.mark.parametrize("text", ["0,0", "1,1-2", "0-3,2"])
def test_a_seed_given_twice_is_refused(text):
    with pytest.raises(GymlabError, match=r"names seed \d twice"):
        parse_seeds(text)


def test_options_of_the_parent_are_not_passed_on():
    argv = [
        "X:ppo",
        "--seeds",
        "0-4",
        "--jobs=2",
        "n_envs=4",
        "-q",
        "--json",
        "--run-id",
        "r",
        "--runs-dir",
        "d",
        "--seed-like=1",
    ]
    assert seeds._without_own_options(argv) == ["X:ppo", "n_envs=4", "--runs-dir", "d", "--seed-like=1"]


def test_the_mean_is_over_seeds_that_finished(tmp_path):
    runs = [SeedRun(seed, f"r{seed}", [], tmp_path) for seed in range(6)]
    for run, mean in zip(runs, [10.0, 20.0, 60.0, 20.0, 40.0], strict=False):
        run.summary = {
            "seed": run.seed,
            "run": run.run_id,
            "status": "finished",
            "experiment": "X:y",
            "result": {"mean": mean},
        }
    runs[5].status, runs[5].error = "failed", "why"
    summary = summarize(runs)
    assert summary["experiment"] == "X:y"
    assert summary["mean"] == 30.0
    assert summary["n"] == 5
    # 30 ± 2.776 · 20 / √5
    assert summary["ci95"] == pytest.approx([5.17, 54.83], abs=0.01)
    assert summary["seeds"][5] == {"seed": 5, "run": "r5", "status": "failed", "error": "why"}
    few = summarize(runs[:3])
    assert (few["mean"], few["ci95"], few["min"], few["max"]) == (30.0, None, 10.0, 60.0)
    assert return_text(few) == "30.0 (range 10.0 to 60.0)"


def test_one_seed_has_no_interval(tmp_path):
    run = SeedRun(0, "r", [], tmp_path, status="finished")
    run.summary = {"seed": 0, "run": "r", "status": "finished", "result": {"mean": 5.0}}
    assert summarize([run])["ci95"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "2"], "--seeds"),
        (["--seeds", "0-1", "--seed", "3"], "--seed and --seeds"),
        (["--seeds", "0-1", "--jobs", "0"], "--jobs 0"),
    ],
)
def test_options_that_do_not_go_together(cli, arguments, message):
    shown = cli("train", "CartPole-v1:ppo", *arguments)
    assert shown.code == 2
    assert message in shown.err


def test_a_bad_experiment_fails_once_before_any_process_starts(cli, tmp_path):
    shown = cli("train", "CartPole-v1:pppo", "--seeds", "0-3")
    assert shown.code == 2
    assert shown.err.count("pppo") == 1
    assert not (tmp_path / "runs").exists()


def test_two_seeds_at_a_time(cli, tmp_path, tiny):
    shown = cli("train", "CartPole-v1:ppo", *tiny, "--seeds", "0-1", "--jobs", "2", "--json")
    assert shown.code == 0, shown.err
    summary = shown.json()
    assert [row["seed"] for row in summary["seeds"]] == [0, 1]
    assert [row["status"] for row in summary["seeds"]] == ["finished", "finished"]
    means = [row["result"]["mean"] for row in summary["seeds"]]
    assert summary["mean"] == pytest.approx(sum(means) / 2)
    assert summary["ci95"] is None
    assert [summary["min"], summary["max"]] == sorted(means)
    assert "--seeds 0-1 --jobs 2" in summary["seeds"][0]["command"]
    assert sorted(run.record["seed"] for run in all_runs(tmp_path / "runs")) == [0, 1]
    assert "seed 0: finished" in shown.err


def test_a_seed_that_fails_is_reported_and_the_other_counts(cli, tmp_path, tiny):
    (tmp_path / "runs" / "taken-s1").mkdir(parents=True)
    shown = cli("train", "CartPole-v1:ppo", *tiny, "--seeds", "0-1", "--run-id", "taken", "--jobs", "2")
    assert shown.code == 1
    assert "seed 1 failed" in shown.err
    assert "exists already" in shown.err
    assert "over 1 seed" in shown.out
    assert Run(tmp_path / "runs" / "taken-s0").status == "finished"


def test_ctrl_c_stops_all_seeds_cleanly(tmp_path, wait_for):
    command = [sys.executable, "-m", "gymlab", "train", "CartPole-v1:ppo", "max_env_steps=1e8", "eval_freq_epochs=null"]
    command += ["--seeds", "0-2", "--jobs", "2", "--run-id", "long"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started = [Run(tmp_path / "runs" / f"long-s{seed}") for seed in (0, 1)]
    wait_for(lambda: all((run.dir / "metrics.csv").exists() for run in started), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert [run.status for run in started] == ["stopped", "stopped"]
    for run in started:
        run.checkpoints.find().verify()
    assert not (tmp_path / "runs" / "long-s2").exists()
    assert "stopped" in out
