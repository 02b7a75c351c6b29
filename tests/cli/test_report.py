"""`gymlab report`: one run's report, or a results page over many."""

import json
import shutil

import pytest

from gymlab.cli.report import BEGIN, END, collect_results, write_page
from gymlab.engine.run import Run
from gymlab.errors import GymlabError


def made_up_run(directory, run_id, *, seed=0, mean=480.0, status="finished", started=1.0, experiment="CartPole-v1:ppo"):
    """A run directory as a training leaves it, without the training."""
    folder = directory / run_id
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "metrics.csv").write_text("train/cnt/env_steps,sys/time/wall\n50000,8.5\n100000,17.0\n")
    result = (
        {"mean": mean, "ci95": [mean, mean], "n": 10, "threshold": 475.0, "solved": mean >= 475}
        if status == "finished"
        else None
    )
    record = {
        "status": status,
        "reason": "finished" if status == "finished" else "NonFiniteError: x",
        "experiment": experiment,
        "seed": seed,
        "started": started,
        "command": "gymlab train CartPole-v1:ppo --seeds 0-1",
        "counters": {"env_steps": 100_000},
        "result": result,
        "versions": {"commit": "0123456789ab"},
    }
    (folder / "run.json").write_text(json.dumps(record))
    return Run(folder)


def test_the_report_of_a_run(cli, trained):
    shown = cli("report", "tiny", "--runs-dir", trained)
    assert shown.code == 0, shown.err
    assert shown.out == (trained / "tiny" / "report.md").read_text()
    assert cli("report", "--runs-dir", trained).out == shown.out


def test_a_report_is_written_anew_from_the_run_directory(cli, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs", symlinks=True)
    run = tmp_path / "runs" / "tiny"
    text = (run / "report.md").read_text()
    for name in ("report.md", "curve.png"):
        (run / name).unlink()
    shown = cli("report", "tiny")
    assert shown.code == 0, shown.err
    assert (run / "report.md").read_text() == shown.out == text
    assert (run / "curve.png").stat().st_size > 10_000
    record = json.loads((run / "run.json").read_text())
    record["result"]["mean"] = 499.0
    (run / "run.json").write_text(json.dumps(record | {"notices": ["something was said"]}))
    assert "solved (threshold 475)" in cli("report", "tiny").out
    assert "- something was said" in (run / "report.md").read_text()


def test_a_crashed_run_is_reported_as_far_as_it_came(cli, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs", symlinks=True)
    path = tmp_path / "runs" / "tiny" / "run.json"
    record = json.loads(path.read_text()) | {"status": "crashed", "reason": "NonFiniteError: x"}
    for name in ("result", "counters", "seconds"):
        del record[name]
    path.write_text(json.dumps(record))
    shown = cli("report", "tiny")
    assert shown.code == 0, shown.err
    assert "| status | crashed: NonFiniteError: x |" in shown.out
    assert "| env steps | 512 (" in shown.out
    assert "| return | not evaluated |" in shown.out


def test_a_run_as_json(cli, trained):
    result = cli("report", "tiny", "--runs-dir", trained, "--json").json()
    assert result["run"] == "tiny"
    assert result["result"]["n"] == 5


def test_a_results_page_over_seeds(cli, tmp_path):
    for seed, mean in enumerate([480.0, 500.0]):
        made_up_run(tmp_path / "runs", f"cart-s{seed}", seed=seed, mean=mean)
    made_up_run(tmp_path / "runs", "cart-s2", seed=2, status="crashed")
    shown = cli("report", "cart-*", "--markdown", "docs/results.md")
    assert shown.code == 0, shown.err
    assert "cart-s2 is left out: crashed, NonFiniteError: x." in shown.err
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "490.0 (range 480.0 to 500.0)" in page
    for cell in (
        "`CartPole-v1:ppo`",
        "0-1",
        "2/2 ≥ 475",
        "100,000",
        "17.0 s",
        "--seeds 0-1",
        "`012345678`",
        "cart-s2 is left out",
    ):
        assert cell in page
    cli("report", "cart-s0", "cart-s1", "--markdown", "docs/results.md")
    again = (tmp_path / "docs" / "results.md").read_text()
    assert again.count("`CartPole-v1:ppo`") == 1
    assert "cart-s2" not in again


def test_the_newest_run_of_a_seed_counts(tmp_path):
    old = made_up_run(tmp_path, "old", mean=100.0, started=1.0)
    new = made_up_run(tmp_path, "new", mean=200.0, started=2.0)
    results, left_out = collect_results([new, old])
    assert [result.value for result in results] == [200.0]
    assert left_out == ["old is left out: new is a newer run of the same seed and settings."]


def test_a_results_page_keeps_other_settings_apart_and_names_them(tmp_path):
    runs = [made_up_run(tmp_path, f"r{seed}", seed=seed, mean=100.0 + seed) for seed in range(4)]
    for run, n_envs in zip(runs, (8, 8, 16, 16), strict=True):
        (run.dir / "config.json").write_text(json.dumps({"n_envs": n_envs, "quiet": n_envs == 8}))
    results, told = collect_results(runs)
    assert [(result.experiment, result.seed) for result in results] == [
        ("CartPole-v1:ppo, n_envs=8", 0),
        ("CartPole-v1:ppo, n_envs=8", 1),
        ("CartPole-v1:ppo, n_envs=16", 2),
        ("CartPole-v1:ppo, n_envs=16", 3),
    ]
    assert len(told) == 1
    assert "2 groups here, by n_envs." in told[0]


def test_several_runs_as_json(cli, tmp_path):
    made_up_run(tmp_path / "runs", "a", seed=0)
    made_up_run(tmp_path / "runs", "b", seed=1)
    found = cli("report", "a", "b", "--json").json()
    assert [result["seed"] for result in found["results"]] == [0, 1]
    assert found["left_out"] == []


def test_nothing_to_report(cli, tmp_path):
    made_up_run(tmp_path / "runs", "crash", status="crashed")
    assert cli("report", "crash*").code == 2
    assert "no report" in cli("report", "crash").err
    assert "'x*'" in cli("report", "x*").err


def test_text_around_the_table_stays(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Mine\n\nbefore\n\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(page, "new\n")
    assert page.read_text() == f"# Mine\n\nbefore\n\n{BEGIN}\nnew\n{END}\nafter\n"


def test_a_page_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GymlabError, match="--markdown"):
        write_page(tmp_path / "file" / "page.md", "x")
