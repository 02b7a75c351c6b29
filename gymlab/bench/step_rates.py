"""Step rates of vector environments with random actions. Runs in worker processes."""

from __future__ import annotations

from typing import Any

import gymnasium

import gymlab
from gymlab.bench.parts import mean_seconds, random_actions
from gymlab.engine.seeding import SeedTree
from gymlab.envs import make_vector

VEC_STEPS = 128
"""Vector steps between two looks at the clock."""


def time_steps(env_id: str, num_envs: int, backend: str, seed: int, seconds: float) -> dict[str, Any]:
    """Environment steps a second of one backend: native, sync or async of gymlab, or `gymnasium`."""
    environment: Any
    if backend == "gymnasium":
        # gymlab's environments keep episode statistics, so Gymnasium's do as well.
        plain = gymnasium.make_vec(env_id, num_envs=num_envs, vectorization_mode="sync")
        environment = gymnasium.wrappers.vector.RecordEpisodeStatistics(plain)
        environment.reset(seed=seed)
        environment.action_space.seed(seed)
        actions = [environment.action_space.sample() for _ in range(VEC_STEPS)]
    else:
        config = gymlab.resolve(env_id, algo="ppo", seed=seed).config
        environment = make_vector(config, num_envs, SeedTree(seed), backend=backend)
        environment.reset()
        environment.action_space.seed(seed)
        actions = random_actions(environment, VEC_STEPS)

    def step() -> None:
        for action in actions:
            environment.step(action)

    rate = num_envs * VEC_STEPS / mean_seconds(step, seconds).wall
    environment.close()
    return {"steps_per_second": rate}
