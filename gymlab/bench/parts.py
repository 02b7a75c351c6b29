"""gymlab's parts, each timed alone: vector env, policy, collection, update. Runs in worker processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gymlab
from gymlab.bench.measure import rate_of
from gymlab.bench.peers import own
from gymlab.bench.settings import Setting
from gymlab.engine.setup import Session, prepare

WARMUP_CYCLES = 3
"""Cycles before the first that counts: caches fill and a loss is compiled there."""
FEWEST_CYCLES = 5


def time_parts(
    setting: Setting, seed: int, options: dict[str, Any], seconds: float, measure: Sequence[str] = ()
) -> dict[str, Any]:
    """Median seconds of each part for one rollout; without `measure` all of them, and the rate of a training."""
    config = gymlab.resolve(f"{setting.env_id}:ppo", **own.fields(setting, seed, None, options)).config
    session = prepare(config)
    figures: dict[str, Any] = {}
    if not measure or {"collect", "update"} & set(measure):
        figures |= time_hooks(session, seconds)
        figures["update_seconds_per_minibatch"] = figures["update_seconds"] / setting.minibatches
        figures["collect_steps_per_second"] = setting.rollout / figures["collect_seconds"]
    if not measure or "policy" in measure:
        figures["policy_seconds"] = time_policy(session, setting.n_steps, seconds / 4)
    if not measure or "env" in measure:
        figures["env_seconds"] = time_environment(session, setting.n_steps, seconds / 4)
    session.close()
    if not measure:
        figures |= time_whole(setting, seed, options, seconds, figures)
    return figures


def time_whole(
    setting: Setting, seed: int, options: dict[str, Any], seconds: float, figures: dict[str, Any]
) -> dict[str, Any]:
    """The rate of a training, the rate if nothing but the parts were done, and the first as a share of the second."""
    rate = rate_of(own.train(setting, setting.steps_for(seconds), seed, options, None)).per_second
    alone = figures["env_seconds"] + figures["policy_seconds"] + figures["update_seconds"]
    bound = setting.rollout / alone
    return {"steps_per_second": rate, "bound_steps_per_second": bound, "share": rate / bound}


def time_hooks(session: Session, seconds: float) -> dict[str, float]:
    """Median time of a whole collection and of a whole update, in cycles as the orchestrator runs them."""
    times: dict[str, list[float]] = {"collect": [], "update_controller": []}
    started = time.perf_counter()
    while min(map(len, times.values())) < WARMUP_CYCLES + FEWEST_CYCLES or time.perf_counter() - started < seconds:
        action = session.scheduler.next_action()
        assert action is not None
        assert action.phase.buffer is not None
        hook = getattr(session.workflow, action.hook)
        buffer = session.buffers[action.phase.buffer]
        begin = time.perf_counter()
        if action.collects:
            result = hook(action.view)
            times[action.hook].append(time.perf_counter() - begin)
            buffer.add(result.trajectory)
            session.counters.env_steps += result.env_steps
            session.scheduler.advance(action, env_steps=result.env_steps)
        else:
            updated = hook(buffer.sample(), action.view)
            times[action.hook].append(time.perf_counter() - begin)
            session.scheduler.advance(action, updates=updated.updates)
    return {
        "collect_seconds": statistics.median(times["collect"][WARMUP_CYCLES:]),
        "update_seconds": statistics.median(times["update_controller"][WARMUP_CYCLES:]),
    }


def time_policy(session: Session, vec_steps: int, seconds: float) -> float:
    """Time of choosing actions for one rollout."""
    act, observation = session.workflow.act, session.environment.observation.copy()

    def choose() -> None:
        for _ in range(vec_steps):
            act(observation)

    return median_seconds(choose, seconds)


def time_environment(session: Session, vec_steps: int, seconds: float) -> float:
    """Time of stepping the vector env for one rollout, with random actions made before."""
    environment = session.environment
    actions = random_actions(environment, vec_steps)

    def step() -> None:
        for action in actions:
            environment.step(action)

    return median_seconds(step, seconds)


def random_actions(environment: Any, vec_steps: int) -> list[np.ndarray]:
    """Actions for every step and environment, drawn from the action space."""
    space = environment.action_space
    return [np.stack([space.sample() for _ in range(environment.num_envs)]) for _ in range(vec_steps)]


def median_seconds(work: Callable[[], object], seconds: float) -> float:
    """Median time of `work`, called for about `seconds` after one call to warm up."""
    work()
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < FEWEST_CYCLES or time.perf_counter() - started < seconds:
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
