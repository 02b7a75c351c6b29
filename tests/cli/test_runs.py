"""`gymlab runs`, `runs show`, `runs prune`, `runs restore`."""

import json
import os
import sys
import time
from dataclasses import asdict

import pytest
from run_makers import make_run, tree

from gymlab.cli import runs_prune
from gymlab.cli.main import main
from gymlab.engine.lock import run_lock
from gymlab.metrics.alerts import Recap

RESULT = {"mean": 480.25, "ci95": [470.0, 490.0], "n": 100, "threshold": 475.0, "solved": True}
REACHED = "finished: val/roll/ep_rew/mean 481 reached 475"


@pytest.fixture
def runs(tmp_path):
    """A run of each kind."""
    directory = tmp_path / "runs"
    make_run(
        directory, "solved-s0-20261115-213301", age_days=3, result=RESULT, reason=REACHED, checkpoints=(1, 2, 3), best=1
    )
    make_run(directory, "broken", age_days=2, status="crashed", reason="NonFiniteError: loss is NaN\nat step 12")
    make_run(directory, "ended", age_days=1, status="stopped", reason="stopped by SIGTERM", best_return=12.5)
    (make_run(directory, "torn").dir / "run.json").write_text("{")
    (directory / "Pictures").mkdir()
    return directory


def test_people_get_a_table(cli, runs, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    shown = cli("runs")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert " ".join(lines[1].split()) == "run experiment seed status return [95%] env steps training started size"
    assert [line.split()[0] for line in lines[2:5]] == ["ended", "broken", "solved-s0-20261115-213301"]
    assert "finished: ≥ 475" in lines[4]
    assert "480.2 [470.0, 490.0] ✓" in lines[4]
    assert "stopped by SIGTERM" in lines[2]
    assert "12.5 best" in lines[2]
    assert "1 day ago" in lines[2]
    assert "crashed: NonFiniteError" in lines[3]
    assert "1 damaged" in shown.out
    assert "torn: runs/torn/run.json is not valid JSON" in shown.out
    assert "delete it, then `gymlab train --resume torn` writes a new one" in shown.out
    assert "no runs, left alone: Pictures" in shown.out
    assert all(len(line) <= 140 for line in lines[:5])


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_table_fits_the_screen_a_line_a_run(cli, runs, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    make_run(runs, "cartpole-v1-ppo-s0-20261115-213301-two", status="crashed", reason="ValueError: " + "long " * 40)
    lines = cli("runs").out.splitlines()[1:6]
    assert all(len(line) <= width for line in lines)
    found = ["cartpole-v1-ppo-s0-20261115-213301-two", "ended", "broken", "solved-s0-20261115-213301"]
    assert [line.split()[0] for line in lines[1:]] == found
    assert "return" in lines[0]
    assert "experiment" in lines[0]
    assert ("env steps" in lines[0]) is (width > 80)


def test_columns_without_room_are_told_of(cli, runs, monkeypatch):
    make_run(runs, "cartpole-v1-ppo-s0-20261115-213301-two", experiment="Pendulum-v1:tdmpc2", result=RESULT)
    narrow = cli("runs").out
    assert "Pendulum-v1:tdmpc2" in narrow
    assert "480.2 ✓" in narrow
    assert "… more columns: gymlab runs --long" in narrow
    monkeypatch.setenv("COLUMNS", "180")
    assert "more columns" not in cli("runs").out
    assert "training 1.5 s" in cli("runs", "--long").out


def test_progress_of_a_running_run(cli, runs, monkeypatch):
    row = "train/cnt/env_steps,train/roll/ep_rew/mean\n250,17.25\n"
    run = make_run(runs, "going", status="running", metrics=row, counters={}, pid=os.getpid(), host=os.uname().nodename)
    with run_lock(run.dir):
        shown = cli("runs", "--status", "running").out
        assert "running: 25%" in shown
        assert "17.2 train" in shown
        assert f"{os.getpid()} on {os.uname().nodename}" in cli("runs", "show", "going").out


def test_json(cli, runs):
    found = cli("runs", "--sort", "name", "--json").json()
    assert [entry["id"] for entry in found["runs"]] == ["broken", "ended", "solved-s0-20261115-213301"]
    assert found["runs"][0]["reason"] == "NonFiniteError: loss is NaN\nat step 12"
    assert found["runs"][2]["result"].items() >= RESULT.items()
    assert found["runs"][2]["size"] > 100
    assert [entry["id"] for entry in found["damaged"]] == ["torn"]
    assert found["foreign"] == ["Pictures"]


def test_filters_sorting_and_limit(cli, runs):
    def listed(*arguments):
        return [entry["id"] for entry in cli("runs", *arguments, "--json").json()["runs"]]

    assert listed("--status", "crashed") == ["broken"]
    assert listed("--since", "36h") == ["ended"]
    assert listed("cartpole", "--limit", "1") == ["ended"]
    assert listed("--reverse", "--limit", "1") == ["solved-s0-20261115-213301"]
    assert listed("--env", "cart*", "--algo", "ppo", "--sort", "return")[0] == "solved-s0-20261115-213301"
    assert listed("--env", "Lunar*") == []


def test_empty_states_say_what_to_do(cli, runs):
    assert "gymlab train" in cli("runs", "--runs-dir", "nowhere").out
    assert "None of the 3 runs" in cli("runs", "nothing-like-this").out
    assert "2 more" in cli("runs", "--limit", "1").out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--status", "crasht"], ["'crashed'"]),
        (["--since", "soon"], ["'soon'", "2d"]),
        (["--sort", "retrun"], ["'return'"]),
        (["--limit", "0"], ["above 0"]),
        (["--limit", "2", "show", "x"], ["comes first"]),
        (["show", "solvd"], ["No run 'solvd'"]),
        (["show", "torn"], ["run.json", "--resume torn"]),
        (["prune"], ["--status crashed", "--dry-run"]),
        (["prune", "--include-last", "--yes"], ["Without a filter"]),
        (["prune", "--empty-trash", "--status", "crashed"], ["goes alone"]),
        (["prune", "--status", "crashed"], ["Nothing was changed", "--yes"]),
        (["prune", "--status", "crashed", "--json"], ["Nothing was changed"]),
        (["restore", "broken"], ["in the trash"]),
    ],
)
def test_what_is_refused(cli, runs, arguments, parts):
    before = tree(runs)
    shown = cli("runs", *arguments)
    assert shown.code == 2
    for part in parts:
        assert part in shown.err
    assert tree(runs) == before


def test_one_run_in_full(cli, runs):
    record = {
        "resumed": [{"time": time.time(), "from": "epoch=0001.ckpt"}],
        "command": "gymlab train X",
    }
    make_run(runs, "full", result=RESULT, reason=REACHED, checkpoints=(1, 2), best=1, **record)
    alert = Recap("kl_high", "train/opt/ppo/approx_kl", "KL is high.", "Lower policy_lr.", 128, 256, 1, 2, 1, 2)
    (runs / "full" / "alerts.json").write_text(json.dumps([asdict(alert)]))
    shown = cli("runs", "show", "full").out
    for part in (
        REACHED,
        "480.2 [470.0, 490.0] ✓; 100 episodes; threshold 475: solved",
        "1,000 of 1,000",
        "gymlab train X",
    ):
        assert part in shown
    assert "from epoch=0001.ckpt" in shown
    assert "kl_high: KL is high. Lower policy_lr." in shown
    assert [line.split()[:2] for line in shown.splitlines()[-2:]] == [
        ["epoch=0001.ckpt", "best"],
        ["epoch=0002.ckpt", "last"],
    ]
    found = cli("runs", "show", "full", "--json").json()
    assert found["alerts"] == [asdict(alert)]
    assert [item["links"] for item in found["checkpoints"]] == [["best"], ["last"]]


def test_a_dry_run_changes_nothing(cli, runs):
    before = tree(runs)
    shown = cli("runs", "prune", "--older-than", "36h", "--dry-run")
    assert shown.code == 0
    assert "2 runs" in shown.out
    assert "nothing was changed" in shown.out
    assert "broken" in shown.out
    assert "ended" not in shown.out
    assert cli("runs", "prune", "cartpole", "--checkpoints-only", "-n").code == 0
    assert cli("runs", "prune", "--empty-trash", "-n").code == 0
    assert tree(runs) == before


def test_prune_restore_and_empty(cli, runs):
    planned = cli("runs", "prune", "--status", "crashed", "--json", "--dry-run").json()
    assert [item["id"] for item in planned["going"]] == ["broken"]
    shown = cli("runs", "prune", "--status", "crashed", "--yes")
    assert "1 run moved to the trash" in shown.out
    assert not (runs / "broken").exists()
    assert "broken" in cli("runs", "restore").out
    assert cli("runs", "restore", "broken").code == 0
    assert (runs / "broken" / "config.json").is_file()
    cli("runs", "prune", "broken", "--yes")
    assert "freed" in cli("runs", "prune", "--empty-trash", "--yes").out
    assert list((runs / ".trash").iterdir()) == []
    assert "is empty" in cli("runs", "prune", "--empty-trash").out


def test_a_run_that_trains_is_left_alone(cli, runs):
    with run_lock(runs / "broken"):
        shown = cli("runs", "prune", "broken", "--yes")
        assert "kept: broken: it is running" in shown.out
        assert "nothing to prune" in shown.out
    assert (runs / "broken").exists()


def test_a_run_that_begins_after_the_question_is_left_alone(cli, runs, monkeypatch):
    lock = run_lock(runs / "broken")

    def agreed(question, arguments):
        lock.__enter__()
        return True

    monkeypatch.setattr(runs_prune, "_agreed", agreed)
    shown = cli("runs", "prune", "broken")
    lock.__exit__(None, None, None)
    assert shown.code == 1
    assert "is running and is left alone" in shown.err
    assert (runs / "broken").exists()


def test_checkpoints_only(cli, runs):
    shown = cli("runs", "prune", "solved", "--checkpoints-only", "--yes")
    assert "epoch=0002" in shown.out
    names = sorted(path.name for path in (runs / "solved-s0-20261115-213301" / "checkpoints").iterdir())
    assert names == ["best.ckpt", "epoch=0001.ckpt", "epoch=0003.ckpt", "last.ckpt"]
    assert "nothing to prune" in cli("runs", "prune", "solved", "--checkpoints-only", "--yes").out


@pytest.mark.parametrize(("answer", "exists"), [("n", True), ("", True), ("y", False)])
def test_on_a_terminal_it_asks(cli, runs, monkeypatch, answer, exists):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda *_: answer)
    assert main(["runs", "prune", "broken"]) == 0
    assert (runs / "broken").exists() is exists


def test_what_is_only_wanted_wide_is_not_read(cli, tmp_path, monkeypatch):
    """Sizes take a walk over every file of a run: a narrow table has no room for them."""
    walked = []
    monkeypatch.setattr("gymlab.engine.registry.directory_size", lambda path: walked.append(path) or 0)
    for number in range(30):
        make_run(tmp_path / "runs", f"run-{number}", result=RESULT)
    assert len(cli("runs").out.splitlines()) == 33
    assert walked == []


def test_listing_needs_no_torch(runs):
    import subprocess

    code = "import sys; from gymlab.cli.main import main; main(['runs']); main(['runs', 'show', 'broken']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=runs.parent)


def test_runs_in_full_have_their_experiment_and_whole_reason(cli, runs):
    reason = "EnvironmentFailure: my_env.py:40, in step: KeyError: 'a name so long that no column of a table has room for it'\n    code"
    make_run(runs, "long-reason", status="crashed", reason=reason)
    shown = cli("runs", "long-reason", "--long").out
    assert reason.splitlines()[0] in shown
    assert "\n      code" in shown
    assert "CartPole-v1:ppo" in shown
