"""Evaluations whose episodes do not all end: never solved, and every place that shows the return says so."""

import re

import pytest
from endless import ENV_ID, SETTINGS

from gymlab.cli.main import main
from gymlab.engine.run import Run
from gymlab.inspector.runs import read_row

FAVOURS = re.compile(r"(\d+) of (\d+) finished; the mean favours short episodes \(limit of 50 steps an episode\)")


def train(runs, run_id, *more):
    words = ["train", ENV_ID, "--algo", "ppo", *SETTINGS, *more, "--quiet", "--runs-dir", str(runs), "--run-id", run_id]
    assert main(words) == 0
    return runs


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    return train(tmp_path_factory.mktemp("halves") / "runs", "half")


@pytest.fixture(scope="module")
def never(tmp_path_factory):
    return train(tmp_path_factory.mktemp("never") / "runs", "never", "env_kwargs={never: true}")


def note_in(text):
    """The note, in text that may be wrapped to the width of a screen."""
    found = FAVOURS.search(" ".join(re.sub(r"[│\n]", " ", text).split()))
    assert found, text
    return int(found[1]), int(found[2])


def test_the_record_the_report_and_the_panel(halves, capfd, tmp_path):
    run = Run(halves / "half")
    assert (run.result["mean"], run.result["solved"], run.result["ci95"]) == (1.0, None, None)
    counts = run.result["n"], 20
    assert 0 < counts[0] < 20
    assert note_in(run.result["note"]) == note_in((run.dir / "report.md").read_text()) == counts
    assert "solved" not in (run.dir / "report.md").read_text()
    capfd.readouterr()
    train(tmp_path / "runs", "again")
    panel = capfd.readouterr().out
    assert note_in(panel) == counts
    assert "solved" not in panel


def test_evaluations_of_a_training_choose_no_best_and_stop_nothing(halves):
    run = Run(halves / "half")
    # Each of them had a mean of 1, which is the threshold.
    assert run.record["reason"] == "finished"
    assert run.record["best_return"] is None
    assert run.metrics["val/roll/ep_rew/mean"][:2] == [1.0, 1.0]
    unfinished, ended = (run.metrics[f"val/roll/{name}"][0] for name in ("unfinished", "episodes"))
    assert unfinished + ended == 20
    assert "val/roll/ep_rew/ci95_low" not in run.metrics
    assert sum("Unfinished evaluations" in notice for notice in run.record["notices"]) == 1


@pytest.mark.parametrize("words", [["runs"], ["runs", "show", "half"], ["report", "half"], ["eval", "half"]])
def test_commands_for_people(cli, halves, words):
    shown = cli(*words, "--runs-dir", halves)
    assert shown.code == 0, shown.err
    note_in(shown.out)
    assert "✓" not in shown.out


@pytest.mark.parametrize("words", [["compare", "half"], ["report", "hal*"]])
def test_commands_that_put_runs_together(cli, halves, words):
    shown = cli(*words, "--runs-dir", halves)
    assert shown.code == 0, shown.err
    note_in(shown.err)
    assert "1/1" not in shown.out


def test_json(cli, halves):
    (listed,) = cli("runs", "--runs-dir", halves, "--json").json()["runs"]
    shown = cli("runs", "show", "half", "--runs-dir", halves, "--json").json()
    reported = cli("report", "half", "--runs-dir", halves, "--json").json()
    evaluated = {"result": cli("eval", "half", "--runs-dir", halves, "--json").json()}
    for found in (listed, shown, reported, evaluated):
        assert note_in(found["result"]["note"])[0] == found["result"]["n"]
        assert found["result"]["solved"] is None
    (row,) = cli("compare", "half", "--runs-dir", halves, "--json").json()["results"]
    note_in(row["runs"][0]["note"])


def test_the_inspector(halves):
    score = read_row(Run(halves / "half"))["score"]
    note_in(score["note"])
    assert (score["mean"], score["solved"], score["ci95"]) == (1.0, None, None)


def test_no_episode_ended(cli, never):
    words = "no episode ended after 50 steps: limit of 50 steps an episode"
    run = Run(never / "never")
    assert (run.result["mean"], run.result["n"], run.result["note"]) == (None, 0, words)
    assert words in (run.dir / "report.md").read_text()
    assert words in cli("runs", "--runs-dir", never).out
    assert words in " ".join(cli("runs", "show", "never", "--runs-dir", never).out.split())
    assert words in cli("eval", "never", "--runs-dir", never).out
    assert read_row(run)["score"]["note"] == words
    shown = cli("report", "nev*", "--runs-dir", never)
    assert shown.code == 2
    assert words in shown.err


def test_limits_of_eval(cli, never):
    shown = cli("eval", "never", "--step-limit", "70", "--episodes", "3", "--runs-dir", never, "--json").json()
    assert (shown["n"], shown["cut"], shown["steps"]) == (0, "limit of 70 steps an episode", 70)
    shown = cli("eval", "never", "--time-limit", "1e-9", "--runs-dir", never, "--json").json()
    assert (shown["n"], shown["cut"]) == (0, "time limit of 1e-09 s")


def test_play_gives_up_too(cli, halves, never):
    shown = cli("play", "never", "--headless", "--episodes", "2", "--runs-dir", never)
    assert shown.code == 0, shown.err
    assert shown.out.count("unfinished") == 2
    assert "no episode ended after 50 steps: limit of 50 steps an episode" in shown.out
    shown = cli("play", "half", "--headless", "--episodes", "12", "--runs-dir", halves, "--json").json()
    lengths = {"terminated": 3, "unfinished": 50}
    assert [row["length"] for row in shown["episodes"]] == [lengths[row["ending"]] for row in shown["episodes"]]
    assert shown["n"] == [row["ending"] for row in shown["episodes"]].count("terminated")
    assert (shown["mean"], shown["asked"], note_in(shown["note"])) == (1.0, 12, (shown["n"], 12))
    shown = cli("play", "never", "--headless", "--time-limit", "1e-9", "--runs-dir", never, "--json").json()
    assert [row["length"] for row in shown["episodes"]] == [1]
    assert shown["cut"] == "time limit of 1e-09 s"


def test_limits_need_no_window(cli, never):
    shown = cli("play", "never", "--step-limit", "5", "--runs-dir", never)
    assert shown.code == 2
    assert "--step-limit is for --headless and --save" in shown.err


def test_a_recording_holds_whole_episodes(cli, never, tmp_path):
    pytest.importorskip("minari")
    shown = cli("record", "never", "--step-limit", "40", "--runs-dir", never, "--out", tmp_path / "demos")
    assert shown.code == 2
    assert "Episode 1 did not end within 40 steps" in shown.err
    assert not any(path.is_dir() for path in (tmp_path / "demos").iterdir())
