import argparse
import contextlib
import json

import pytest

from gymlab.bench import BENCHES, load_bench, ppo
from gymlab.bench.launch import WorkerFailure
from gymlab.bench.measure import Repeats
from gymlab.bench.plan import Plan
from gymlab.bench.sections import bound, busy, speed, threshold
from gymlab.bench.settings import REFERENCE, SETTINGS
from gymlab.errors import GymlabError

MACHINE = [1.0, 0.5, 0.8]
"""How fast the machine is in each repeat."""


def fake_training(job, timeout):
    """gymlab 30k, compiled 40k, peers 10k; torch's default threads halve a peer's figure per CPU second."""
    rate = {"gymlab": 30_000.0, REFERENCE: 10_000.0}[job["library"]] * MACHINE[job["seed"]]
    if job["options"] == {"update_backend": "compile"}:
        rate *= 4 / 3
    threads = 2 if job["threads"] is None and job["library"] != "gymlab" else 1
    return {"steps_per_second": rate, "steps_per_cpu_second": rate / threads}


def test_speed_compares_all_rows_on_the_same_steps():
    jobs = []

    def worker(job, timeout):
        jobs.append(job)
        return fake_training(job, timeout)

    plan = Plan(settings=[SETTINGS["8x128"]], backends=["compile"], repeats=3, seconds=1.0, worker=worker)
    section = speed.measure(plan)
    assert len({job["env_steps"] for job in jobs}) == 1
    assert [job["seed"] for job in jobs] == [0] * 4 + [1] * 4 + [2] * 4
    peers = section.data["8x128"]["peers"]
    assert list(peers) == ["gymlab", "gymlab compile", REFERENCE, f"{REFERENCE}, default threads"]
    assert peers["gymlab"]["steps_per_second"] == 24_000.0
    assert peers["gymlab"]["ratio"] == pytest.approx(3.0)
    assert peers["gymlab compile"]["ratio"] == pytest.approx(4.0)
    assert peers[REFERENCE]["ratio"] == 1.0
    assert peers[f"{REFERENCE}, default threads"]["cpu_ratio"] == pytest.approx(0.5)
    default, best = section.checks
    assert (default.goal, default.value, default.met) == (2.5, pytest.approx(3.0), True)
    assert (best.goal, best.value, best.met) == (3.0, pytest.approx(4.0), True)
    assert "gymlab compile" in best.name


def test_a_backend_that_fails_leaves_the_others_measured():
    def worker(job, timeout):
        if job["options"]:
            raise WorkerFailure("train with gymlab: no compiler here")
        return fake_training(job, timeout)

    plan = Plan(settings=[SETTINGS["8x128"]], backends=["compile"], repeats=2, worker=worker)
    section = speed.measure(plan)
    assert section.data["8x128"]["peers"]["gymlab compile"]["errors"] == ["train with gymlab: no compiler here"]
    assert section.data["8x128"]["peers"]["gymlab compile"]["ratio"] is None
    assert section.checks[1].value == pytest.approx(3.0)
    assert "no compiler here" in section.tables[0].note


def test_the_share_on_a_busy_machine_is_of_the_librarys_own_one_thread(monkeypatch):
    monkeypatch.setattr(busy, "busy_cores", lambda count: contextlib.nullcontext())

    def worker(job, timeout):
        collapsed = job["threads"] is None and job["library"] == REFERENCE
        return {"steps_per_second": MACHINE[job["seed"]] * (100.0 if collapsed else 1000.0)}

    section = busy.measure(Plan(repeats=3, worker=worker))
    assert section.data["peers"]["gymlab"]["share_of_one_thread"] == 1.0
    assert section.data["peers"][f"{REFERENCE}, default threads"]["share_of_one_thread"] == pytest.approx(0.1)
    assert section.checks[0].met


def test_the_bound_is_reported_per_setting():
    answer = dict.fromkeys(bound.KEYS, 0.002) | {"share": 0.85, "cpu_share": 0.9, "bound_steps_per_second": 40_000.0}
    section = bound.measure(Plan(repeats=2, worker=lambda job, timeout: answer))
    assert [check.value for check in section.checks] == [0.85] * 3
    assert all(check.met for check in section.checks)
    assert section.tables[0].rows[0][1:] == ["2", "2", "2", "40,000", "0.002", "85%", "90%"]


def test_time_to_threshold_is_a_ratio_of_medians_on_the_same_seeds():
    seconds = {"gymlab": [3.0, 4.0, 9.0], REFERENCE: [10.0, 12.0, 11.0]}
    seen = []

    def worker(job, timeout):
        seen.append((job["library"], job["seed"]))
        return {"reached": True, "seconds": seconds[job["library"]][job["seed"] - 5], "env_steps": 30_000}

    section = threshold.measure(Plan(seeds=(5, 6, 7), worker=worker))
    assert seen == [(library, seed) for seed in (5, 6, 7) for library in ("gymlab", REFERENCE)]
    assert section.data["ratio"] == pytest.approx(4.0 / 11.0)
    assert section.checks[0].met


def test_a_seed_that_never_passes_counts_as_the_slowest():
    passed = {"reached": True, "env_steps": 10}
    repeats = Repeats([passed | {"seconds": 2.0}, {"reached": False}, passed | {"seconds": 4.0}])
    summary = threshold.summarize(repeats)
    assert summary["reached"] == 2
    assert summary["median_seconds"] == 4.0
    assert summary["seconds"] == [2.0, None, 4.0]
    never = threshold.summarize(Repeats([{"reached": False}, {"reached": False}, passed | {"seconds": 1.0}]))
    assert never["median_seconds"] is None


def parse(*words):
    parser = argparse.ArgumentParser()
    ppo.add_arguments(parser)
    return parser.parse_args(words)


def test_options_become_a_plan_and_the_command_that_repeats_it():
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is an extra: pip install 'gymlab[peers]'")
    arguments = parse("--quick", "--repeats", "4", "--setting", "8x32", "--backends", "compile,analytic", "--peers", "")
    plan = ppo.plan_from(arguments)
    assert (plan.repeats, plan.seconds, plan.backends) == (4, 1.0, ["compile", "analytic"])
    assert [setting.name for setting in plan.settings] == ["8x32"]
    assert plan.peers == [REFERENCE]
    command = ppo.command_line(arguments)
    assert command == "gymlab bench ppo --quick --repeats 4 --setting 8x32 --backends compile,analytic"


def test_the_command_prints_json_writes_markdown_and_fails_on_a_missed_goal(monkeypatch, capsys, tmp_path):
    slow = {"steps_per_second": 1.0, "share": 0.5}
    answer = dict.fromkeys(bound.KEYS, 1.0) | slow
    monkeypatch.setattr("gymlab.bench.ppo.Plan", lambda **options: Plan(worker=lambda job, timeout: answer, **options))
    path = tmp_path / "benchmarks.md"
    words = ["--section", "bound", "--quick", "--json", "--markdown", str(path)]
    assert ppo.run_command(parse(*words)) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data["sections"]) == ["bound"]
    assert [check["met"] for check in data["checks"]] == [False] * 3
    assert "share of the bound" in path.read_text()
    assert ppo.run_command(parse(*words, "--check")) == 1


def test_every_bench_has_options_and_a_line_of_help():
    for name in BENCHES:
        bench = load_bench(name)
        parser = argparse.ArgumentParser()
        bench.add_arguments(parser)
        assert parser.parse_args(["--json"]).json
        assert bench.HELP
    with pytest.raises(GymlabError, match="Did you mean 'envs'"):
        load_bench("env")
