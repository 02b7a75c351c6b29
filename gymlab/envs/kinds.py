"""Of which kinds environments are, in the words in which config classes say where a setting does nothing."""

from __future__ import annotations

import numpy as np
from gymnasium import Space, spaces

from gymlab.config.effects import (
    CONTINUOUS_ACTIONS,
    DISCRETE,
    DISCRETE_ACTIONS,
    IMAGES,
    NATIVE,
    NO_DISCRETE,
    NO_IMAGES,
    NO_WORKERS,
    ONE_A_PROCESS,
    UNBOUNDED,
)
from gymlab.envs.families import family_of
from gymlab.envs.spaces import leaves
from gymlab.envs.vector import VectorEnv, is_image_space

NO_BOUND = 1e30
"""Some environments write the largest float32 instead of infinity."""


def kinds_of(environment: VectorEnv, env_id: str) -> set[str]:
    """The kinds that an environment is of."""
    observed = environment.observation_space
    parts = [leaf for _, leaf in leaves(environment.raw_observation_space)]
    continuous = isinstance(environment.action_space, spaces.Box)
    found = {
        IMAGES: is_image_space(observed),
        DISCRETE: not isinstance(observed, spaces.Box),
        UNBOUNDED: isinstance(observed, spaces.Box) and not _has_bounds(observed),
        NO_IMAGES: not any(is_image_space(part) for part in parts),
        NO_DISCRETE: all(isinstance(part, spaces.Box) for part in parts),
        CONTINUOUS_ACTIONS: continuous,
        DISCRETE_ACTIONS: not continuous,
        NO_WORKERS: environment.backend != "async",
        NATIVE: environment.backend == "native",
        ONE_A_PROCESS: family_of(env_id).one_a_process,
    }
    return {kind for kind, holds in found.items() if holds}


def _has_bounds(space: Space) -> bool:
    """Whether any dimension of a box lies between two finite bounds that differ."""
    assert isinstance(space, spaces.Box)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    return bool(((np.abs(low) < NO_BOUND) & (np.abs(high) < NO_BOUND) & (high > low)).any())
