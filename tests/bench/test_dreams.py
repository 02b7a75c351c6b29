"""The bench of dreams: goals from a worker that answers at once, and a short measurement."""

from types import SimpleNamespace

from gymlab.bench import dream_rates, dreams
from gymlab.bench.dream_rates import rate, time_dreams
from gymlab.bench.plan import Plan


def worker(job, timeout):
    together = {32: 500_000.0, 256: 40_000.0, 512: 12_000.0}[job["hidden"]]
    return {"alone": 1000.0, "together": together, "ratio": together / 1000}


def test_goals_are_taken_from_the_figures():
    section = dreams.measure(Plan(repeats=2, worker=worker), threads=1)
    assert [(check.value, check.met) for check in section.checks] == [(500.0, True), (40.0, True), (12.0, False)]
    assert section.tables[0].rows[1] == ["CarRacing-v3", "256", "1,000", "40,000", "40.00x"]
    assert "64 controllers with 16 dreams each, 1 thread(s)" in section.tables[0].title


def test_both_ways_are_measured_turn_by_turn(monkeypatch):
    rates = {1: iter([1.0, 2.0, 4.0]), 64 * 16: iter([100.0, 400.0, 200.0])}

    def rate(work, rows, seconds):
        assert len(work()) == rows
        return next(rates[rows])

    monkeypatch.setattr(dream_rates, "rate", rate)
    job = dreams.dreams_job(dreams.SIZES["CartPole-v1"], threads=1, seconds=0.01, seed=0)
    assert time_dreams(job) == {"alone": 2.0, "together": 200.0, "ratio": 100.0}


def test_a_rate_counts_steps_by_time(monkeypatch):
    """Half a second a piece: the first warms up, two fit into the second that follows."""
    clock = iter([0.0, 0.5, 1.0, 1.0])
    monkeypatch.setattr(dream_rates, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    done = []
    assert rate(lambda: done.append(1), 10, seconds=1.0) == 2 * 10 * dream_rates.STEPS
    assert len(done) == 3
