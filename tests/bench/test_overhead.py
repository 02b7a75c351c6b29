"""The parts of a training add up, and what is none of them is left."""

import time
from types import SimpleNamespace

import pytest

from gymlab.bench.overhead import POLICY_CALLS, Clock, time_outside
from gymlab.bench.sections.overhead import SHARES
from gymlab.bench.settings import SETTINGS
from gymlab.engine import train as training


def test_a_call_within_a_call_counts_once():
    clock = Clock()
    inner = clock.wrap("inner", lambda: time.sleep(0.02))
    outer = clock.wrap("outer", inner)
    outer()
    assert clock.seconds["inner"] == 0.0
    assert clock.seconds["outer"] >= 0.02
    inner()
    assert clock.seconds["inner"] >= 0.02


def test_shares_add_up_to_the_whole():
    prepare = training.prepare
    shares = time_outside(SETTINGS["8x32"], 0, {}, 2048)
    assert training.prepare is prepare
    assert sum(shares[name] for name in SHARES) == pytest.approx(1)
    assert all(0 < shares[name] < 1 for name in SHARES)


def test_an_evaluation_after_the_loop_is_not_counted():
    def part(*names):
        return SimpleNamespace(**{name: lambda: time.sleep(0.01) for name in names})

    workflow = part("update_controller")
    workflow.policy, workflow.encoder, workflow.distribution = (
        part("actor", "critic"),
        part("encode"),
        part(*POLICY_CALLS),
    )
    session = SimpleNamespace(environment=part("step"), workflow=workflow, make_evaluation_environment=lambda: "made")
    clock = Clock()
    clock.watch(session)
    workflow.policy.actor()
    before = dict(clock.seconds)
    assert before["policy"] > 0
    assert session.make_evaluation_environment() == "made"
    workflow.policy.actor()
    assert clock.seconds == before
