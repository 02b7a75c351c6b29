"""How long a step of an environment takes and what it does meanwhile: from this follow backend, workers and halves."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import gymnasium as gym

SLOW_STEP_SECONDS = 0.5e-3
"""Environments slower than this pay for the way to a worker and back."""
MEASURE_SECONDS, MEASURE_STEPS = 0.3, 200
ALL_THE_TIME = 0.8
"""An environment that computes for more than this share of its step leaves a core nothing to do beside it."""
HALVES_GAIN = 1.15
"""How many times quicker rows must be with halves by turns, by the reckoning, to pay for what it leaves out."""


class Pace(NamedTuple):
    """One step of one environment, resets included."""

    seconds: float
    computing: float
    """Share of that time in which it computes, itself or in a program of its own; the rest it waits."""


UNKNOWN = Pace(math.inf, 0.0)
"""Of an environment that failed while it was timed: it is kept apart from the others."""


def measure_pace(make: Callable[[], gym.Env]) -> Pace:
    """Steps with random actions in an environment that is thrown away; call it in a process of its own."""
    env = make()
    env.action_space.seed(0)
    env.reset()
    # The first step may load fonts, open a renderer or compile: it is not counted.
    _, _, terminated, truncated, _ = env.step(env.action_space.sample())
    # What is computed and the time in line are read within the time that passes, so that they are never more.
    programs, start, queued, computed = _programs(), time.perf_counter(), _queued(), time.process_time()
    steps = 0
    while steps < MEASURE_STEPS and time.perf_counter() - start < MEASURE_SECONDS:
        if terminated or truncated:
            env.reset()
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps += 1
    computed, queued = time.process_time() - computed, _queued() - queued
    # What it stood in line for a core says something about other programs, not about this one.
    elapsed = time.perf_counter() - start - queued
    computed += _programs() - programs
    env.close()
    return Pace(elapsed / steps, min(1.0, computed / elapsed))


def _programs() -> float:
    """CPU seconds of the programs that this process has started: a game may be one."""
    import psutil

    started = psutil.Process().children(recursive=True)
    return float(sum(sum(program.cpu_times()[:2]) for program in started))


def _queued() -> float:
    """Seconds that this thread could have run, had there been a core for it; 0 where the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, IndexError):
        return 0.0


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(num_envs: int, pace: Pace, cores: int) -> int:
    """Processes that keep all cores busy: one a core if environments compute, more by as much as they wait."""
    computing = 1.0 if pace.computing > ALL_THE_TIME else pace.computing
    block = max(1, int(num_envs * computing / cores))
    workers = math.ceil(num_envs / block)
    # An even number of environments can be stepped in halves, if no worker has some of both.
    return workers + 1 if workers > 1 and workers % 2 and num_envs % 2 == 0 else workers


def halves_pay(
    pace: Pace, num_envs: int, workers: int, cores: int, policy_seconds: float, half_policy_seconds: float
) -> bool:
    """Whether a row is clearly quicker when workers step one half while the policy acts on the other.

        at once:   steps of a block, then the policy on all
        by turns:  the policy on a half, twice, and behind each the steps of a block, which have the other cores

    So it is not where a policy takes as long for a half as for all, as small networks do; nor beside long steps; nor
    where environments compute on every core, the policy's too.
    """
    if not math.isfinite(pace.seconds):
        return False
    block = math.ceil(num_envs / workers) * pace.seconds
    computing = num_envs * pace.seconds * pace.computing
    at_once = max(block, computing / cores) + policy_seconds
    by_turns = max(
        block + half_policy_seconds,
        2 * half_policy_seconds,
        computing / max(1, cores - 1),
        (computing + 2 * half_policy_seconds) / cores,
    )
    return at_once > HALVES_GAIN * by_turns
