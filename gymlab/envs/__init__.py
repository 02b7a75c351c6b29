"""Environments: one step format over every backend and every family."""

from gymlab.envs.build import make_env, make_vector, step_rate
from gymlab.envs.step import Episode, Step
from gymlab.envs.vector import EnvironmentSpec, VectorEnv

__all__ = ["EnvironmentSpec", "Episode", "Step", "VectorEnv", "make_env", "make_vector", "step_rate"]
