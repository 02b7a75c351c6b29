"""What a step takes and whether it computes: the clock, and the workers and halves that follow from it."""

import subprocess
import sys
import time

import pytest
from counting_env import Counting

from gymlab.envs import pace
from gymlab.envs.pace import UNKNOWN, Pace, halves_pay, measure_pace, worker_count
from gymlab.envs.worker import call_apart


class Waiting(Counting):
    def step(self, action):
        time.sleep(0.004)
        return super().step(action)


class Computing(Counting):
    def step(self, action):
        end = time.thread_time() + 0.004
        while time.thread_time() < end:
            pass
        return super().step(action)


class Remote(Counting):
    """A program of its own does the work."""

    def __init__(self):
        super().__init__()
        code = "import sys, time\nfor _ in sys.stdin:\n end = time.process_time() + 0.02\n while time.process_time() < end: pass\n print(1, flush=True)"
        self.program = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def step(self, action):
        self.program.stdin.write("\n")
        self.program.stdout.readline()
        return super().step(action)

    def close(self):
        self.program.kill()
        self.program.wait()


def pace_of(kind):
    return call_apart(lambda: measure_pace(kind), 30.0)


def test_an_environment_that_waits():
    seconds, computing = pace_of(Waiting)
    assert seconds >= 0.004
    assert computing < 0.3


def test_an_environment_that_computes_does_so_beside_other_programs_too():
    rival = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        # The host of a virtual machine may take the core away for a while.
        paces = [pace_of(Computing) for _ in range(3)]
    finally:
        rival.kill()
        rival.wait()
    assert min(found.seconds for found in paces) >= 0.004
    assert max(found.computing for found in paces) > pace.ALL_THE_TIME


def test_what_a_program_of_its_own_computes_counts(monkeypatch):
    monkeypatch.setattr(pace, "MEASURE_SECONDS", 1.0)
    assert pace_of(Remote).computing > 0.15


@pytest.mark.parametrize(
    ("num_envs", "computing", "cores", "workers"),
    [
        (8, 1.0, 2, 2),
        (8, 0.9, 2, 2),
        (4, 1.0, 1, 1),
        (4, 1.0, 8, 4),
        (9, 1.0, 3, 3),
        # Blocks of two on three cores; two workers would leave one core idle.
        (8, 1.0, 3, 4),
        # Rounded up, so that halves can be made.
        (6, 1.0, 3, 4),
        (8, 0.5, 2, 4),
        (8, 0.02, 2, 8),
        (7, 0.02, 2, 7),
        (64, 0.25, 2, 8),
    ],
)
def test_workers_keep_the_cores_busy(num_envs, computing, cores, workers):
    assert worker_count(num_envs, Pace(0.002, computing), cores) == workers


def test_what_failed_while_it_was_timed_is_kept_apart_and_at_once():
    assert worker_count(8, UNKNOWN, 2) == 8
    assert not halves_pay(UNKNOWN, 8, 8, 2, 0.1, 0.01)


@pytest.mark.parametrize(
    ("step", "computing", "workers", "policy", "half_policy", "pays"),
    [
        # 2 + 3 against 2 + 1.6.
        (2, 0.0, 8, 3.0, 1.6, True),
        # 2 + 3 against 2 + 2.9: the network takes as long for half of them.
        (2, 0.0, 8, 3.0, 2.9, False),
        # 20 + 3 against 20 + 1.6: the policy hardly counts.
        (20, 0.0, 8, 3.0, 1.6, False),
        # 0.1 + 3 against 3.2: the steps hardly count.
        (0.1, 0.0, 8, 3.0, 1.6, False),
        # 4 + 6 on two cores against 8 on the one that the policy leaves.
        (1, 1.0, 2, 6.0, 3.0, True),
        # 8 + 3 against 16.
        (2, 1.0, 2, 3.0, 1.6, False),
    ],
)
def test_halves_pay_where_steps_and_policy_take_turns_at_waiting(step, computing, workers, policy, half_policy, pays):
    found = halves_pay(Pace(step / 1e3, computing), 8, workers, 2, policy / 1e3, half_policy / 1e3)
    assert found == pays


def test_halves_do_not_pay_on_one_core_that_is_always_busy():
    assert not halves_pay(Pace(0.001, 1.0), 8, 2, 1, 0.006, 0.003)
