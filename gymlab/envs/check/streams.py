"""The same seeds, the same stream: in one environment twice, in a fresh process, and through the vector backends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from gymlab.envs.build import Blueprint, make_vector
from gymlab.envs.check.findings import Finding, failed, ok, warning
from gymlab.envs.subenv import SubEnv
from gymlab.envs.vector import Seeds, VectorEnv

TRACE_STEPS = 200
"""Steps that are compared at most."""

Trace = list[str]
"""One fingerprint a step: of observation, reward and both flags; the first of all is of the first observation."""

NOT_FROM_THE_SEED = (
    "Draw everything random from `self.np_random`, which `super().reset(seed=seed)` makes; no `random`, no `np.random`."
)


def seeding(plan: Blueprint, steps: int) -> Finding:
    """The same seed gives the same episodes, in the same and in another environment; another seed other ones."""
    plan = replace(plan, seeds=None, shared={})
    env = plan.make(0)
    first, later, other_seed = (seeded_trace(env, seed, steps) for seed in (1, 1, 2))
    env.close()  # Some games run once a process.
    anew = seeded_trace(plan.make(0), 1, steps)
    if (place := difference(first, anew)) is not None:
        detail = f"the same seed gives another episode in a new environment, from {place}"
        return failed("seeding", detail, NOT_FROM_THE_SEED)
    if (place := difference(first, later)) is not None:
        detail = f"the same seed gives another episode when the environment is reset with it again, from {place}"
        return failed("seeding", detail, "Something outlives the reset: set back everything that an episode changed.")
    if first == other_seed:
        advice = "Right for a task without chance; if it should have some, draw it from `self.np_random`."
        return warning("seeding", f"seeds 1 and 2 give the same {steps} steps", advice)
    return ok("seeding", f"the same seed repeats {steps} steps, another seed does not")


def seeded_trace(env: SubEnv, seed: int, steps: int) -> Trace:
    """Random steps, each episode reset with a seed that follows from the first."""
    env.action_space.seed(0)
    observation, _ = env.reset(seed=seed)
    trace, episode = [fingerprint(observation)], 0
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        trace.append(fingerprint(observation, reward, terminated, truncated))
        if terminated or truncated:
            episode += 1
            observation, _ = env.reset(seed=1000 * seed + episode)
            trace[-1] += fingerprint(observation)
    return trace


def fingerprint(*values: Any) -> str:
    """A few characters that differ when any bit of the values does."""
    digest = hashlib.sha256()
    for value in values:
        array = np.asarray(value)
        digest.update(f"{array.dtype.kind}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:16]


def difference(one: Trace, other: Trace) -> str | None:
    """Where two traces part: `the first observation` or `step 7`; None when they are equal."""
    for step, (left, right) in enumerate(zip_longest(one, other)):
        if left != right:
            return f"step {step}" if step else "the first observation"
    return None


def replay(plan: Blueprint, steps: int, fresh: Callable[[], Trace]) -> Finding:
    """A process started from nothing, with other hash seeds and other addresses, repeats the episode."""
    place = difference(seeded_trace(replace(plan, seeds=None, shared={}).make(0), 1, steps), fresh())
    if place is None:
        return ok("replay", "a fresh process repeats the episode: a run resumes exactly")
    advice = (
        "Something depends on the process: the order of a set, hash() or id(), the time, a file. Sort what is iterated "
        "over. It trains all the same; a resumed run begins fresh episodes, and no two runs are alike."
    )
    return warning("replay", f"a fresh process gives another episode, from {place}", advice)


def single_stream(plan: Blueprint, env_index: int, actions: Sequence[Any]) -> Trace:
    """Environment `env_index` alone, reset by hand whenever an episode ends."""
    env = replace(plan, shared={}).make(env_index)
    observation, _ = env.reset()
    trace = [_stored(env.observation_space, observation)]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
        final = _stored(env.observation_space, observation) if ended else ""
        if ended:
            observation, _ = env.reset()
        shown = _stored(env.observation_space, observation)
        trace.append(
            fingerprint(np.float32(reward), bool(terminated), bool(truncated and not terminated)) + final + shown
        )
    return trace


def vector_streams(vector: VectorEnv, actions: Sequence[Sequence[Any]]) -> list[Trace]:
    """The streams of a vector's environments; `actions[i]` are those of environment i."""
    observation = vector.reset()
    traces = [[fingerprint(row)] for row in observation]
    for step_actions in zip(*actions, strict=True):
        step = vector.step(np.stack([np.asarray(action) for action in step_actions]))
        for index, trace in enumerate(traces):
            flags = fingerprint(step.reward[index], bool(step.terminated[index]), bool(step.truncated[index]))
            ended = step.final_observation is not None and step.ended[index]
            final = fingerprint(step.final_observation[index]) if ended and step.final_observation is not None else ""
            trace.append(flags + final + fingerprint(step.observation[index]))
    return traces


def _stored(space: Any, observation: Any) -> str:
    """The fingerprint of an observation as vectors keep it."""
    return fingerprint(np.asarray(observation).astype(space.dtype))


def same_stream(
    check: str, plan: Blueprint, seeds: Seeds, actions: Sequence[Sequence[Any]], alone: Sequence[Trace]
) -> Finding:
    """`len(alone)` environments through a vector backend of ours give what each gave alone."""
    count = len(alone)
    with make_vector(plan.config, count, seeds, purpose=plan.purpose, backend=check) as vector:
        streams = vector_streams(vector, actions[:count])
        episodes = int(vector.episode_counts.sum())
    for index, (stream, expected) in enumerate(zip(streams, alone, strict=True)):
        place = difference(expected, stream)
        if place is not None:
            advice = (
                "Copies of it are not independent: look for state in class or module variables, or a buffer that is "
                "given away and written over."
            )
            return failed(check, f"environment {index} of {count} differs from one alone, from {place}", advice)
    return ok(check, f"{count} x {len(alone[0]) - 1} steps as alone, {episodes:,} episodes ended and reset")
