"""The bench of dreams: goals from a worker that answers at once, and a short measurement."""

import pytest

from gymlab.bench import dreams
from gymlab.bench.dream_rates import time_dreams
from gymlab.bench.plan import Plan


def worker(job, timeout):
    together = {32: 500_000.0, 256: 40_000.0, 512: 12_000.0}[job["hidden"]]
    return {"alone": 1000.0, "together": together, "ratio": together / 1000}


def test_goals_are_taken_from_the_figures():
    section = dreams.measure(Plan(repeats=2, worker=worker), threads=1)
    assert [(check.value, check.met) for check in section.checks] == [(500.0, True), (40.0, True), (12.0, False)]
    assert section.tables[0].rows[1] == ["CarRacing-v3", "256", "1,000", "40,000", "40.00x"]
    assert "64 controllers with 16 dreams each, 1 thread(s)" in section.tables[0].title


def test_both_ways_are_measured():
    job = dreams.dreams_job(dreams.SIZES["CartPole-v1"], threads=1, seconds=0.01, seed=0)
    found = time_dreams(job)
    assert found["ratio"] == pytest.approx(found["together"] / found["alone"], rel=1)
    assert found["ratio"] > 5
