"""The Dreamer comparison: goals from a worker that answers at once, and gymlab's own updates."""

import pytest

from gymlab.bench import dreamer
from gymlab.bench.dreamer_updates import time_updates
from gymlab.bench.launch import WorkerFailure
from gymlab.bench.plan import Plan

FIGURES = {
    ("gymlab", False): (0.3, 600e6, 637_381),
    ("gymlab", True): (2.0, 1200e6, 685_940),
    ("sheeprl", False): (0.9, 800e6, 637_381),
    ("sheeprl", True): (3.0, 1000e6, 685_940),
}


def worker(job, timeout):
    seconds, memory, parameters = FIGURES[job["library"], job["image"]]
    times = {"seconds": seconds * (1 + job["seed"]), "cpu_seconds": 2 * seconds}
    spent = {f"share/{part}": {"dreams": 0.6, "backward": 0.4}.get(part, 0.0) for part in dreamer.PARTS}
    return {**times, "peak_bytes": memory, "parameters": parameters, **(spent if job["library"] == "gymlab" else {})}


def test_goals_are_taken_from_the_figures():
    section = dreamer.measure(Plan(repeats=2, worker=worker), ["vector", "image"], threads=2, updates=5)
    checks = {check.name: (pytest.approx(check.value), check.met) for check in section.checks}
    assert checks == {
        "vector: sheeprl / gymlab, seconds an update": (3.0, True),
        "vector: gymlab / sheeprl, peak memory": (0.75, True),
        "image: sheeprl / gymlab, seconds an update": (1.5, False),
        "image: gymlab / sheeprl, peak memory": (1.2, False),
    }
    assert section.data["image"]["sheeprl"]["cpu_seconds"] == 6.0
    table, spent = section.tables
    assert table.rows[0] == ["vector", "0.45", "1.35", "3.00x", "600", "800", "0.75x"]
    assert "every state imagined on for 15, 2 thread(s)" in table.title
    shown = dict(zip(spent.columns, spent.rows[0], strict=True))
    assert (shown["observation"], shown["dreams"], shown["backward"]) == ("vector", "60%", "40%")
    assert "vector: 637,381 and 637,381; image: 685,940 and 685,940" in table.note


def test_a_library_that_fails_is_named():
    def broken(job, timeout):
        if job["library"] == "sheeprl":
            raise WorkerFailure("dreamer with sheeprl: the process ended with code 1:\nModuleNotFoundError: sheeprl")
        return worker(job, timeout)

    section = dreamer.measure(Plan(repeats=1, worker=broken), ["vector"], threads=1, updates=1)
    assert not any(check.met for check in section.checks)
    assert "sheeprl failed: ModuleNotFoundError: sheeprl" in section.tables[0].note


def test_updates_are_timed():
    job = dreamer.update_job("gymlab", dreamer.OBSERVATIONS["vector"], threads=1, updates=2, seed=0)
    answer = time_updates({**job, "size": "tiny", "batch_size": 2, "length": 4, "horizon": 2})
    assert answer["seconds"] > 0
    assert answer["cpu_seconds"] > 0
    assert answer["peak_bytes"] > 1e8
    assert answer["parameters"] > 10_000
    spent = {part: answer[f"share/{part}"] for part in dreamer.PARTS}
    assert all(share > 0 for share in spent.values())
    assert sum(spent.values()) == pytest.approx(1)
