"""`gymlab bench collect --section workers`: steps of a stated time, and the table made of them."""

import time

import gymnasium as gym
import pytest

from gymlab.bench.paced import Paced, time_ways
from gymlab.bench.plan import Plan
from gymlab.bench.sections import workers


@pytest.mark.parametrize("waits", [True, False])
def test_a_step_takes_what_it_is_told(waits):
    env = Paced(20, waits, pictures=False)
    env.reset()
    wall, cpu = time.perf_counter(), time.thread_time()
    env.step(0)
    assert time.perf_counter() - wall >= 0.02
    assert (time.thread_time() - cpu < 0.01) == waits


def test_every_way_is_timed():
    figures = time_ways(4, 1.0, True, "mlp", seed=0, repeats=1)
    gym.registry.pop("Paced-v0")
    assert list(figures)[:6] == list(workers.ways(4, 2))
    # Four environments that wait for 1 ms, one after the other or all at the same time.
    assert figures["in this process"][0] >= 0.004
    assert figures["one worker each"][0] >= 0.001
    assert (figures["auto workers"], figures["auto by turns"]) == ([4.0], [0.0])
    assert 0 < figures["policy"][0] < 0.1


def test_ratios_are_medians_of_turns_and_auto_is_held_to_the_best():
    asked = []

    def worker(job, timeout):
        asked.append(job)
        seconds = {way: [0.010, 0.012, 0.014] for way in workers.ways(8, 2)}
        seconds |= {"in this process": [0.020, 0.024, 0.07], "one worker each, by turns": [0.005, 0.006, 0.007]}
        return seconds | {"policy": [0.003], "half policy": [0.002], "auto workers": [8.0], "auto by turns": [1.0]}

    section = workers.measure(Plan(repeats=3, worker=worker), 8, 2.0)
    assert [(job["waits"], job["model_id"]) for job in asked] == list(workers.KINDS.values())
    waiting, computing = section.tables
    assert waiting.rows[0] == ["in this process", "24", "0.50x", "24", "0.50x"]
    assert waiting.rows[2] == ["one worker each, by turns", "6", "2.00x", "6", "2.00x"]
    assert "CNN: the policy takes 3 ms for all and 2 for a half, auto took 8 workers, by turns." in waiting.note
    assert "compute for 2 ms" in computing.title
    assert [(check.value, check.met) for check in section.checks] == [(0.5, False)] * 4
