"""`gymlab compare`: groups of runs in a table, a picture and a CSV."""

import csv
import json

import pytest
from PIL import Image

from gymlab.metrics.statistics import estimates, improvement, iqm

SLOW, FAST = [299.0, 437.5, 335.1, 500.0, 500.0], [235.9, 347.9, 269.3, 498.9, 470.2]


def made_up_run(
    runs, run_id, *, seed, score, settings=None, env_id="CartPole-v1", threshold=475.0, algo="ppo", result=True
):
    """A run directory as a training leaves it, without the training."""
    folder = runs / run_id
    folder.mkdir(parents=True)
    spec = {"returns": {"threshold_solved": threshold, "random": 20.0}}
    config = {"env_id": env_id, "algo_id": algo, "seed": seed, "spec": spec, **(settings or {})}
    (folder / "config.json").write_text(json.dumps(config))
    rows = [f"{step},{step / 1000},{score * step / 3000},{score / 2}" for step in (1000, 2000, 3000)]
    header = "train/cnt/env_steps,sys/time/wall,val/roll/ep_rew/mean,train/roll/ep_rew/mean"
    (folder / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    found = {"mean": score, "ci95": [score, score], "n": 10, "threshold": threshold}
    record = {
        "status": "finished",
        "reason": "finished",
        "experiment": f"{env_id}:{algo}",
        "seed": seed,
        "counters": {"env_steps": 3000},
        "seconds": 3.0,
        "result": found if result else None,
    }
    (folder / "run.json").write_text(json.dumps(record))


@pytest.fixture
def two_variants(tmp_path):
    for seed, (slow, fast) in enumerate(zip(SLOW, FAST, strict=True)):
        made_up_run(tmp_path / "runs", f"slow-{seed}", seed=seed, score=slow, settings={"policy_lr": 0.0003})
        made_up_run(tmp_path / "runs", f"fast-{seed}", seed=seed, score=fast, settings={"policy_lr": 0.001})


def test_two_variants_of_five_seeds(cli, two_variants, tmp_path):
    shown = cli("compare", "slow-*", "fast-*", "--group", "policy_lr", "--json")
    assert shown.code == 0, shown.err
    found = shown.json()
    groups = {row["group"]: row for row in found["results"]}
    assert list(groups) == ["policy_lr=0.0003", "policy_lr=0.001"]
    for row, scores in zip(groups.values(), (SLOW, FAST), strict=True):
        assert row["iqm"]["value"] == pytest.approx(iqm(scores))
        for name, expected in estimates([[score] for score in scores]).items():
            assert [row[name]["low"], row[name]["high"]] == pytest.approx(expected.ci95)
        assert (row["min"], row["max"]) == (min(scores), max(scores))
        assert row["median"]["value"] == pytest.approx(sorted(scores)[2])
        assert row["mean"]["value"] == pytest.approx(sum(scores) / 5)
        assert (row["env_steps"], row["seconds"]) == (3000, 3.0)
    (better,) = found["probability_of_improvement"]
    expected = improvement([[score] for score in SLOW], [[score] for score in FAST])
    assert [better[name] for name in ("value", "low", "high")] == [expected.mean, expected.low, expected.high]
    assert found["score"].startswith("the final evaluation")


def test_one_run_against_one_has_no_interval(cli, two_variants, tmp_path):
    shown = cli("compare", "slow-0", "fast-0", "--group", "policy_lr", "--json")
    assert shown.code == 0, shown.err
    found = shown.json()
    intervals = [row[name] for row in found["results"] for name in ("iqm", "mean", "median")]
    for interval in [*intervals, *found["probability_of_improvement"]]:
        assert (interval["low"], interval["high"]) == (None, None)
    shown = cli("compare", "slow-0", "fast-0", "--group", "policy_lr")
    assert "P(policy_lr=0.0003 > policy_lr=0.001) = 1.000 (n=1, no interval)" in shown.out
    with (tmp_path / "comparison" / "compare.csv").open() as file:
        assert [(row["iqm_low"], row["iqm_high"]) for row in csv.DictReader(file)] == [("", "")] * 2


def test_three_runs_show_their_range_and_call_it_that(cli, two_variants, tmp_path):
    shown = cli("compare", "slow-[0-2]", "fast-*", "--group", "policy_lr")
    assert shown.code == 0, shown.err
    few = [line.split(maxsplit=2) for line in shown.out.splitlines() if "range 299.0 to 437.5" in line]
    # No number of three runs stands bare.
    assert len(few) == 3
    assert "357.2 (range 299.0 to 437.5)" in shown.out
    assert " 3  IQM " in shown.out
    assert "P(policy_lr=0.0003 > policy_lr=0.001) = 0.467 (n=3, no interval)" in shown.out
    assert "the range below 5 runs" in shown.out
    with (tmp_path / "comparison" / "compare.csv").open() as file:
        slow, fast = csv.DictReader(file)
    assert (slow["mean_low"], slow["min"], slow["max"]) == ("", "299.0", "437.5")
    assert float(fast["mean_low"]) < float(fast["mean"])


@pytest.mark.parametrize("width", [80, 100, 160])
def test_names_break_behind_the_environment(cli, tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for algo in ("ppo", "reinforce"):
        for seed in (0, 1, 2):
            made_up_run(tmp_path / "runs", f"{algo}-{seed}", seed=seed, score=100.0 + seed, algo=algo)
    lines = cli("compare", "ppo-*", "reinforce-*").out.splitlines()
    told = [line for line in lines[:9] if line.strip()]
    assert all(len(line) <= width for line in told)
    words = " ".join(told).split()
    assert "CartPole-v1:reinforce" in words or {"CartPole-v1:", "reinforce"} <= {*words}
    assert ("IQM" in lines[1]) is (width == 160)


def test_picture_and_csv(cli, two_variants, tmp_path):
    shown = cli("compare", "slow-*", "fast-*", "--group", "policy_lr", "--x", "time", "--out", "there")
    assert shown.code == 0, shown.err
    assert "P(policy_lr=0.0003 > policy_lr=0.001) = 0.6" in shown.out
    with Image.open(tmp_path / "there" / "compare.png") as picture:
        assert picture.size == (1650, 600)
    with (tmp_path / "there" / "compare.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["group"] for row in rows] == ["policy_lr=0.0003", "policy_lr=0.001"]
    assert float(rows[0]["iqm"]) == pytest.approx(iqm(SLOW))
    assert rows[0]["seeds"] == "0 1 2 3 4"


def test_runs_with_other_settings_are_groups_of_their_own_by_name(cli, two_variants):
    shown = cli("compare", "slow-*", "fast-*", "--json")
    assert shown.code == 0, shown.err
    rows = shown.json()["results"]
    assert {row["group"]: len(row["runs"]) for row in rows} == {
        "CartPole-v1:ppo, policy_lr=0.0003": 5,
        "CartPole-v1:ppo, policy_lr=0.001": 5,
    }
    assert "CartPole-v1:ppo: runs whose settings differ are no seeds of one experiment" in shown.err
    assert "2 groups here, by policy_lr." in shown.err


def test_the_same_seed_and_settings_count_once(cli, tmp_path):
    for run_id, seed, settings in (("a", 0, {}), ("again", 0, {"quiet": True, "video": False}), ("b", 1, {})):
        made_up_run(tmp_path / "runs", run_id, seed=seed, score=100.0 + seed, settings=settings)
    shown = cli("compare", "a", "again", "b", "--json")
    (row,) = shown.json()["results"]
    assert row["group"] == "CartPole-v1:ppo"
    assert [run["seed"] for run in row["runs"]] == [0, 1]
    assert "is left out: " in shown.err
    assert "run of the same seed and settings" in shown.err


def test_a_metric_that_is_named_scores_by_its_last_value(cli, two_variants):
    found = cli("compare", "slow-*", "--metric", "train/roll/ep_rew/mean", "--json").json()
    assert found["results"][0]["mean"]["value"] == pytest.approx(sum(SLOW) / 10)
    assert found["results"][0]["group"] == "CartPole-v1:ppo"
    wrong = cli("compare", "slow-*", "--metric", "val/roll/ep_rew/men")
    assert wrong.code == 2
    assert "val/roll/ep_rew/mean" in wrong.err


def test_runs_without_a_final_evaluation_score_by_their_last(cli, tmp_path):
    made_up_run(tmp_path / "runs", "a", seed=0, score=100.0)
    made_up_run(tmp_path / "runs", "b", seed=1, score=300.0, result=False)
    found = cli("compare", "a", "b", "--json").json()
    assert found["score"] == "the last value of val/roll/ep_rew/mean"
    assert found["results"][0]["mean"]["value"] == 200.0


def test_curves_are_of_training_where_a_run_was_never_evaluated(cli, tmp_path):
    for seed in (0, 1):
        made_up_run(tmp_path / "runs", f"r-{seed}", seed=seed, score=100.0)
    path = tmp_path / "runs" / "r-1" / "metrics.csv"
    path.write_text("train/cnt/env_steps,sys/time/wall,train/roll/ep_rew/mean\n1000,1.0,40.0\n")
    shown = cli("compare", "r-[01]", "--json")
    assert "Not every run was evaluated" in shown.err
    found = shown.json()
    assert found["metric"] == "train/roll/ep_rew/mean"
    assert found["results"][0]["mean"]["value"] == 100.0


def test_several_environments_stand_apart_unless_normalised(cli, tmp_path):
    for seed in (0, 1):
        for algo, gain in (("ppo", 1.0), ("reinforce", 0.5)):
            made_up_run(tmp_path / "runs", f"cart-{algo}-{seed}", seed=seed, score=20 + 455 * gain, algo=algo)
            made_up_run(
                tmp_path / "runs", f"far-{algo}-{seed}", seed=seed, score=20 + 80 * gain, algo=algo,
                env_id="Acrobot-v1", threshold=100.0, settings={"n_envs": 1},
            )  # fmt: skip
    apart = cli("compare", "cart-*", "far-*", "--json").json()
    assert {(row["environment"], row["group"]) for row in apart["results"]} == {
        (env, algo) for env in ("CartPole-v1", "Acrobot-v1") for algo in ("ppo", "reinforce")
    }
    assert apart["normalised"] == []
    together = cli("compare", "cart-*", "far-*", "--normalise", "--json")
    assert together.code == 0, together.err
    values = {row["group"]: row["iqm"]["value"] for row in together.json()["normalised"]}
    assert values == pytest.approx({"ppo": 1.0, "reinforce": 0.5})
    with Image.open(tmp_path / "comparison" / "compare.png") as picture:
        assert picture.size[1] > 1500
    told = "IQM and median have bootstrap intervals, which are too narrow for few runs"
    assert told in cli("compare", "cart-*", "far-*", "--normalise").out
    assert told not in cli("compare", "cart-*", "far-*").out
    ragged = cli("compare", "cart-*", "far-ppo-*", "far-reinforce-0", "--normalise")
    assert ragged.code == 2
    assert "as many runs in each environment" in ragged.err


def test_what_cannot_be_compared(cli, two_variants, tmp_path):
    assert "Which runs?" in cli("compare").err
    assert "'nothing-*'" in cli("compare", "nothing-*").err
    wrong = cli("compare", "slow-*", "--group", "policy_lrr")
    assert wrong.code == 2
    assert "Did you mean 'policy_lr'" in wrong.err
    made_up_run(tmp_path / "runs", "open", seed=0, score=1.0, threshold=None, env_id="Other-v0")
    assert "no return counts as solved in Other-v0" in cli("compare", "open", "slow-*", "--normalise").err


def test_unfinished_runs_are_named(cli, two_variants, tmp_path):
    record = tmp_path / "runs" / "slow-0" / "run.json"
    record.write_text(record.read_text().replace('"status": "finished"', '"status": "crashed"'))
    shown = cli("compare", "slow-*")
    assert shown.code == 0
    assert "slow-0 is crashed" in shown.err
