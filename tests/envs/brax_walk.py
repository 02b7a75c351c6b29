"""A Brax environment without physics, which compiles in a moment: walk on a line and stay near its middle.

x' = x + action / 2; reward 1 - |x'|; the episode ends where |x'| > 2; it begins anywhere in [-1, 1].
"""

import jax
import jax.numpy as jnp
from brax import envs
from brax.envs.base import Env, State


class Walk(Env):
    dt = 0.05

    def reset(self, rng):
        x = jax.random.uniform(rng, (1,), minval=-1.0, maxval=1.0)
        return State(None, x, jnp.float32(0), jnp.float32(0))

    def step(self, state, action):
        x = state.obs + action / 2
        distance = jnp.abs(x[0])
        return state.replace(obs=x, reward=1 - distance, done=jnp.where(distance > 2, 1.0, 0.0))

    @property
    def observation_size(self):
        return 1

    @property
    def action_size(self):
        return 1

    @property
    def backend(self):
        return "none"


envs.register_environment("walk", Walk)
