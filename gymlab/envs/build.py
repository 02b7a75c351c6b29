"""From a config to environments: wrappers in order, and the backend that steps them."""

from __future__ import annotations

import logging
from typing import Any

from gymlab.config.schema import Config
from gymlab.envs.families import Family, family_of
from gymlab.envs.native import NATIVE
from gymlab.envs.subenv import EpisodeRecorder, SubEnv
from gymlab.envs.sync import SyncVector
from gymlab.envs.vector import EnvironmentSpec, Seeds, VectorEnv

logger = logging.getLogger(__name__)


def make_env(
    config: Config,
    *,
    seeds: Seeds | None = None,
    env_index: int = 0,
    render_mode: str | None = None,
    purpose: str = "train",
) -> SubEnv:
    """One environment as the agent sees it; with `seeds`, each episode has the seed of its place in the tree."""
    family, spec, kwargs = describe(config)
    env = family.make(spec.id, kwargs, render_mode)
    recorder = EpisodeRecorder(env, spec.max_episode_steps)
    return SubEnv(recorder, recorder, seeds=seeds, purpose=purpose, env_index=env_index)


def describe(config: Config) -> tuple[Family, EnvironmentSpec, dict[str, Any]]:
    """Family, spec (with the config's own time limit) and keyword arguments of the config's environment."""
    family = family_of(config.env_id)
    kwargs = dict(config.env_kwargs)
    env_id = family.resolve(config.env_id)
    known = family.spec(env_id, kwargs)
    limit = config.max_episode_steps or known.max_episode_steps
    return family, EnvironmentSpec(env_id, known.reward_threshold, limit), kwargs


def make_vector(
    config: Config,
    num_envs: int,
    seeds: Seeds,
    *,
    purpose: str = "train",
    backend: str | None = None,
    render_mode: str | None = None,
) -> VectorEnv:
    """`num_envs` environments behind the one step format; `backend` wins over the config's `vectorization_mode`."""
    _, spec, kwargs = describe(config)
    mode = backend or config.vectorization_mode
    render_mode = render_mode or config.render_mode
    if mode in ("auto", "native") and spec.id in NATIVE:
        return NATIVE[spec.id](spec, num_envs, seeds, purpose, render_mode=render_mode, **kwargs)
    envs = [
        make_env(config, seeds=seeds, env_index=index, render_mode=render_mode, purpose=purpose)
        for index in range(num_envs)
    ]
    return SyncVector(spec, envs)
