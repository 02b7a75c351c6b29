import argparse

import pytest

from gymlab.bench import envs
from gymlab.bench.launch import WorkerFailure
from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport
from gymlab.bench.sections import native
from gymlab.bench.step_rates import race
from gymlab.errors import GymlabError


def parse(*words):
    parser = argparse.ArgumentParser()
    envs.add_arguments(parser)
    return parser.parse_args(list(words))


def test_the_ratio_is_taken_turn_by_turn_and_held_to_the_goal_of_its_number():
    jobs = []

    def worker(job, timeout):
        jobs.append(job)
        speed = 60 if job["env_id"] == "CartPole-v1" else 9
        # The machine halves its speed in the second turn, for both.
        return {"native": [speed * 100.0, speed * 50.0, speed * 90.0], "gymnasium": [100.0, 50.0, 100.0]}

    section = native.measure(Plan(repeats=3, seconds=0.5, worker=worker), ["CartPole-v1", "Taxi-v4"])
    assert [(job["env_id"], job["num_envs"], job["repeats"]) for job in jobs] == [
        ("CartPole-v1", 64, 3),
        ("CartPole-v1", 1024, 3),
        ("Taxi-v4", 64, 3),
        ("Taxi-v4", 1024, 3),
    ]
    assert section.data["Taxi-v4 x 64"]["ratio"] == pytest.approx(9.0)
    assert section.data["Taxi-v4 x 64"]["native"] == 810.0
    assert [(check.goal, check.met) for check in section.checks] == [(8, True), (50, True), (8, True), (50, False)]
    assert section.tables[0].rows[3] == ["Taxi-v4", "1024", "810", "100", "9.00x", "8.1 to 9"]


def test_a_worker_that_fails_misses_the_goal_and_is_named():
    def worker(job, timeout):
        raise WorkerFailure("race: no gymnasium here")

    section = native.measure(Plan(repeats=2, worker=worker), ["Acrobot-v1"], [64])
    assert not section.checks[0].met
    assert section.tables[0].rows == [["Acrobot-v1", "64", "–", "–", "–", "–"]]
    assert "no gymnasium here" in section.tables[0].note


def test_the_two_race_on_equal_terms():
    rates = race("FrozenLake-v1", 4, seed=0, seconds=0.01, repeats=2)
    assert set(rates) == {"native", "gymnasium"}
    assert all(len(turns) == 2 and min(turns) > 100 for turns in rates.values())


def test_sections_and_the_command_that_repeats_the_report(monkeypatch, tmp_path, capsys):
    assert envs.sections_of(parse()) == ["native", "backends"]
    assert envs.sections_of(parse("Taxi-v3")) == ["native", "backends"]
    assert envs.sections_of(parse("LunarLander-v3")) == ["backends"]
    assert envs.sections_of(parse("--section", "native")) == ["native"]
    with pytest.raises(GymlabError, match="LunarLander-v3 has no native version"):
        envs.sections_of(parse("LunarLander-v3", "--section", "native"))
    arguments = parse("Taxi-v4", "--section", "native", "--num-envs", "8,64", "--repeats", "2", "--check")
    assert envs.command_line(arguments) == (
        "gymlab bench envs Taxi-v4 --section native --num-envs 8,64 --repeats 2 --seconds 1"
    )
    slow = {"native": [7.0, 7.0], "gymnasium": [1.0, 1.0]}
    monkeypatch.setattr(envs, "Plan", lambda **fields: Plan(**fields, worker=lambda job, timeout: slow))
    arguments.markdown = tmp_path / "benchmarks.md"
    assert envs.run_command(arguments) == 1
    page = arguments.markdown.read_text()
    assert "<!-- bench envs begin -->" in page
    assert "| Taxi-v4 x 64, ratio | 7 | at least 8 | NO |" in page
    assert "Taxi-v4 x 8," not in page
    assert "7.00x" in capsys.readouterr().out


def test_backends_of_one_environment():
    def worker(job, timeout):
        return {"steps_per_second": {"gymnasium": 10.0, "native": 80.0, "sync": 15.0}[job["backend"]]}

    section = envs.measure(Plan(repeats=2, worker=worker), "CartPole-v1", [8], ["native", "sync"])
    assert section.data["counts"]["8"]["native"]["ratio"] == 8.0
    assert section.tables[0].rows == [["8", "10 (1.00x)", "80 (8.00x)", "15 (1.50x)"]]
    assert isinstance(BenchReport("envs", "gymlab bench envs", [section]).markdown(), str)
