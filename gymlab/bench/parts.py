"""gymlab's parts, each timed alone: vector env, policy, collection, update. Runs in worker processes.

Times are means, not medians: a part that is held up by another process is to count as the whole training that it is
compared with. CPU time stands beside wall time, because it is not held up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import gymlab
from gymlab.bench.measure import rate_of, warmup_marks
from gymlab.bench.peers import own
from gymlab.bench.settings import Setting
from gymlab.engine.setup import Session, prepare

FEWEST_CALLS = 5
"""Timed calls at least, however long one takes."""


class Seconds(NamedTuple):
    """Wall and CPU time."""

    wall: float
    cpu: float


def clock() -> Seconds:
    """Both clocks."""
    return Seconds(time.perf_counter(), time.process_time())


class Stopwatch:
    """Mean time of pieces of work, the first ones left out."""

    def __init__(self, warmup: int) -> None:
        self.calls = -warmup
        self.wall = self.cpu = 0.0

    def add(self, begin: Seconds) -> None:
        """Count a piece of work that began at `begin` and ends now."""
        end = clock()
        if self.calls >= 0:
            self.wall += end.wall - begin.wall
            self.cpu += end.cpu - begin.cpu
        self.calls += 1

    @property
    def mean(self) -> Seconds:
        """Time of one piece."""
        return Seconds(self.wall / self.calls, self.cpu / self.calls)


def time_parts(
    setting: Setting, seed: int, options: dict[str, Any], seconds: float, measure: Sequence[str] = ()
) -> dict[str, Any]:
    """Seconds of each part for one rollout; without `measure` all of them, and the rate of a training."""
    config = gymlab.resolve(f"{setting.env_id}:ppo", **own.fields(setting, seed, None, options)).config
    session = prepare(config)
    env_steps = setting.steps_for(seconds)
    times, actions = time_hooks(session, env_steps // setting.rollout)
    if not measure or "policy" in measure:
        times["policy"] = time_policy(session, setting.n_steps, seconds / 4)
    session.close()
    if not measure or "env" in measure:
        times["env"] = time_environment(prepare(config), actions)
    figures: dict[str, Any] = {f"{part}_seconds": spent.wall for part, spent in times.items()}
    figures["update_seconds_per_minibatch"] = times["update"].wall / setting.minibatches
    if not measure:
        figures |= time_whole(setting, seed, options, env_steps, times)
    return figures


def time_whole(
    setting: Setting, seed: int, options: dict[str, Any], env_steps: int, times: dict[str, Seconds]
) -> dict[str, Any]:
    """The rate of a training, the rate if nothing but the parts were done, and the first as a share of the second."""
    rate = rate_of(own.train(setting, env_steps, seed, options, None))
    alone = [times[part] for part in ("env", "policy", "update")]
    bound = setting.rollout / sum(part.wall for part in alone)
    cpu_bound = setting.rollout / sum(part.cpu for part in alone)
    return {
        "steps_per_second": rate.per_second,
        "bound_steps_per_second": bound,
        "share": rate.per_second / bound,
        "cpu_share": rate.per_cpu_second / cpu_bound,
    }


def time_hooks(session: Session, cycles: int) -> tuple[dict[str, Seconds], list[np.ndarray]]:
    """Time of a collection and of an update, in cycles as the orchestrator runs them; and the actions of each cycle."""
    workflow: Any = session.workflow
    warmup = warmup_marks(cycles)
    collect, update = Stopwatch(warmup), Stopwatch(warmup)
    actions: list[np.ndarray] = []
    while update.calls < cycles - warmup:
        action = session.scheduler.next_action()
        assert action is not None
        assert action.phase.buffer is not None
        hook = getattr(workflow, action.hook)
        buffer = session.buffers[action.phase.buffer]
        begin = clock()
        if action.collects:
            result = hook(action.view)
            collect.add(begin)
            actions.append(workflow.distribution.to_environment(result.trajectory.actions).copy())
            buffer.add(result.trajectory)
            session.counters.env_steps += result.env_steps
            session.scheduler.advance(action, env_steps=result.env_steps)
        else:
            updated = hook(buffer.sample(), action.view)
            update.add(begin)
            session.scheduler.advance(action, updates=updated.updates)
    return {"collect": collect.mean, "update": update.mean}, actions


def time_policy(session: Session, vec_steps: int, seconds: float) -> Seconds:
    """Time of the policy's work for a rollout: actions step by step, then values and log-probs of all rows at once."""
    workflow: Any = session.workflow
    policy, distribution = workflow.policy, workflow.distribution
    observation = session.environment.observation.copy()
    rows = np.concatenate([workflow.encoder.encode(observation, update=False)] * vec_steps)
    generator = np.random.default_rng(0)

    def choose() -> None:
        noise = distribution.noise(generator, (vec_steps, len(observation)))
        for drawn in noise:
            # A policy that gives values with every step has none left to compute at the end.
            parameters = policy.actor(workflow.encoder.encode(observation, update=False))
            actions = distribution.sample(parameters, drawn)
            distribution.to_environment(actions)
        if not policy.collects_values:
            policy.critic(rows)
        distribution.log_prob(np.concatenate([parameters] * vec_steps), np.concatenate([actions] * vec_steps))

    return mean_seconds(choose, seconds)


def time_environment(session: Session, rollouts: Sequence[np.ndarray]) -> Seconds:
    """Time of stepping the vector env for one rollout, on the actions of a training with the same seed.

    The episodes are then those of that training: random actions would end many more, and a reset costs more than a step.
    """
    stopwatch = Stopwatch(warmup_marks(len(rollouts)))
    with session.environment as environment:
        environment.reset()
        for actions in rollouts:
            begin = clock()
            for action in actions:
                environment.step(action)
            stopwatch.add(begin)
    return stopwatch.mean


def random_actions(environment: Any, vec_steps: int) -> list[np.ndarray]:
    """Actions for every step and environment, drawn from the action space."""
    space = environment.action_space
    return [np.stack([space.sample() for _ in range(environment.num_envs)]) for _ in range(vec_steps)]


def mean_seconds(work: Callable[[], object], seconds: float) -> Seconds:
    """Time of `work`, called for about `seconds` after one call to warm up."""
    stopwatch = Stopwatch(warmup=1)
    started = time.perf_counter()
    while stopwatch.calls < FEWEST_CALLS or time.perf_counter() - started < seconds:
        begin = clock()
        work()
        stopwatch.add(begin)
    return stopwatch.mean
