"""The Atari comparison: who takes part, what goals hold, and figures from a worker that answers at once."""

import pytest

from gymlab.bench import atari
from gymlab.bench.peers import own
from gymlab.bench.plan import Plan
from gymlab.bench.settings import REFERENCE


def test_rows_have_the_same_threads():
    rows = atari.contenders(bfloat16=True, threads=2)
    assert [row.name for row in rows] == ["gymlab", "gymlab bf16", REFERENCE]
    assert {row.threads for row in rows} == {2}
    assert all(row.options["torch_threads"] == 2 for row in rows if row.library == "gymlab")


def test_pictures_are_learned_with_the_nature_network():
    fields = own.fields(atari.PONG, 0, 1024, {})
    assert fields["model_id"] == "cnn_nature"
    assert "hidden_dims" not in fields
    assert atari.PONG.minibatches == 16


def test_goals_are_taken_from_the_figures():
    rates = {"gymlab": 320.0, REFERENCE: 200.0}

    def worker(job, timeout):
        if job["task"] == "parts":
            return {"collect_seconds": 1.0, "env_seconds": 0.6, "policy_seconds": 0.3, "update_seconds": 9.0}
        rate = rates[job["library"]] * (1.5 if "precision" in job["options"] else 1.0)
        return {"steps_per_second": rate, "steps_per_cpu_second": rate}

    plan = Plan([atari.PONG], repeats=2, seconds=1.0, worker=worker)
    plain = atari.measure_speed(plan, atari.contenders(bfloat16=False, threads=1))
    assert [(check.value, check.goal, check.met) for check in plain.checks] == [(1.6, 1.5, True)]
    halved = atari.measure_speed(plan, atari.contenders(bfloat16=True, threads=1))
    assert [(pytest.approx(check.value), check.goal) for check in halved.checks] == [(1.6, 1.5), (2.4, 2.0)]
    collection = atari.measure_collection(plan, threads=1)
    assert collection.checks[0].value == pytest.approx(0.9)
    assert collection.data["collect_steps_per_second"] == 1024
