"""Step rates of vector environments with random actions. Runs in worker processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import gymnasium

import gymlab
from gymlab.bench.parts import mean_seconds, random_actions
from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector

VEC_STEPS = 128
"""Vector steps between two looks at the clock."""
RACE = {"native": 64, "gymnasium": 2}
"""The two that race, with the vector steps between two looks at the clock: a step of Gymnasium's takes milliseconds."""


def make_environment(env_id: str, num_envs: int, backend: str, seed: int) -> tuple[Any, list[Any]]:
    """A vector environment that has begun, native, sync or async of gymlab or `gymnasium`, and actions for it."""
    environment: Any
    if backend == "gymnasium":
        # gymlab's environments keep episode statistics, so Gymnasium's do as well.
        plain = gymnasium.make_vec(env_id, num_envs=num_envs, vectorization_mode="sync")
        environment = gymnasium.wrappers.vector.RecordEpisodeStatistics(plain)
        environment.reset(seed=seed)
        environment.action_space.seed(seed)
        return environment, [environment.action_space.sample() for _ in range(VEC_STEPS)]
    config = gymlab.resolve(env_id, algo="ppo", seed=seed).config
    environment = make_vector(config, num_envs, SeedTree(seed), backend=backend)
    environment.reset()
    environment.action_space.seed(seed)
    return environment, random_actions(environment, VEC_STEPS)


def stepper(environment: Any, actions: list[Any], vec_steps: int) -> Callable[[], None]:
    """A piece of work: the next `vec_steps` steps, with the actions in turn."""
    endless = itertools.cycle(actions)

    def work() -> None:
        for action in itertools.islice(endless, vec_steps):
            environment.step(action)

    return work


def time_steps(env_id: str, num_envs: int, backend: str, seed: int, seconds: float) -> dict[str, Any]:
    """Environment steps a second of one backend."""
    environment, actions = make_environment(env_id, num_envs, backend, seed)
    rate = num_envs * VEC_STEPS / mean_seconds(stepper(environment, actions, VEC_STEPS), seconds).wall
    environment.close()
    return {"steps_per_second": rate}


def race(env_id: str, num_envs: int, seed: int, seconds: float, repeats: int) -> dict[str, list[float]]:
    """Environment steps a second of the native environment and of Gymnasium's, turn by turn in this process.

    Turns of one process are as near in time as can be, and 1,024 sub-environments are built but once.
    """
    environments = {name: make_environment(env_id, num_envs, name, seed) for name in RACE}
    works = {name: stepper(*environments[name], vec_steps) for name, vec_steps in RACE.items()}
    rates: dict[str, list[float]] = {name: [] for name in RACE}
    for _ in range(repeats):
        for name, vec_steps in RACE.items():
            rates[name].append(num_envs * vec_steps / mean_seconds(works[name], seconds).wall)
    for environment, _ in environments.values():
        environment.close()
    return rates
