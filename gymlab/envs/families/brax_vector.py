"""Brax environments behind the one step format: N of them in one compiled program that resets what has ended in the same step.

Brax's own auto-reset begins every episode of an environment in the state of its first. Here each episode begins in a state of its own,
drawn with the key of (run, purpose, environment, episode), so that any of them can be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from gymlab.envs.step import Episode, Step
from gymlab.envs.vector import EnvironmentSpec, FiniteCheck, Seeds, Slot, VectorEnv
from gymlab.errors import ConfigError

NEVER = 2**31 - 1
"""Steps after which an episode without a time limit is cut: as many as the counter can count."""


class Open(NamedTuple):
    """The open episodes of all environments."""

    state: Any
    """Brax's State, each array [N, ...]."""
    steps: Any
    """[N] int32 own steps so far: a repeated action counts each time."""
    numbers: Any
    """[N] int32 which episode of its environment it is."""


class Program(NamedTuple):
    """What is compiled, once for every number of environments."""

    begin: Callable[[Any, Any], Open]
    """(key, numbers [N]) -> episodes that have just begun."""
    advance: Callable[[Any, Open, Any], tuple[Open, dict[str, Any]]]
    """(key, open episodes, actions [N, A]) -> open episodes, and what a Step tells."""
    observation_size: int
    action_size: int


def jax_key(seed: int) -> np.ndarray:
    """A key of JAX's from a seed of 64 bits: `PRNGKey` would take half of them."""
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], dtype=np.uint32)


def strong(tree: Any) -> Any:
    """Arrays with a type of their own. Numbers that Brax's code leaves untyped would have everything compiled a second time."""
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.asarray(leaf).dtype), tree)


def space_sizes(environment: Any) -> tuple[int, int]:
    """Lengths of observation and action; nothing is computed for it."""
    import jax

    shaped = jax.eval_shape(environment.reset, jax.ShapeDtypeStruct((2,), np.uint32))
    return int(shaped.obs.shape[-1]), int(environment.action_size)


def spaces(observation_size: int, action_size: int) -> tuple[gym.spaces.Box, gym.spaces.Box]:
    """Observations without bounds; actions from -1 to 1, which Brax's environments scale to their actuators."""
    return (
        gym.spaces.Box(-np.inf, np.inf, (observation_size,), np.float32),
        gym.spaces.Box(-1.0, 1.0, (action_size,), np.float32),
    )


@cache
def program(make: Callable[[str, str], Any], name: str, options: str, limit: int | None, repeat: int) -> Program:
    """The program of an environment; `options` are its arguments as JSON. Equal ones share one, and what was compiled for it."""
    import jax
    import jax.numpy as jnp

    environment = make(name, options)
    most = NEVER if limit is None else limit

    def begin(key: Any, numbers: Any) -> Open:
        rows = jnp.arange(len(numbers))
        keys = jax.vmap(lambda row, number: jax.random.fold_in(jax.random.fold_in(key, row), number))(rows, numbers)
        return strong(Open(jax.vmap(environment.reset)(keys), jnp.zeros_like(numbers), numbers))

    def move(state: Any, steps: Any, action: Any) -> tuple[Any, Any, Any]:
        """One environment, `repeat` times or until its episode ends."""

        def once(carry: Any, _: None) -> tuple[Any, None]:
            state, steps, reward = carry
            over = (state.done > 0) | (steps >= most)
            moved = environment.step(state, action)
            kept = jax.tree.map(lambda new, old: jnp.where(over, old, new), moved, state)
            return (strong(kept), steps + jnp.where(over, 0, 1), reward + jnp.where(over, 0.0, moved.reward)), None

        if repeat == 1:
            moved = environment.step(state, action)
            return moved, steps + 1, moved.reward
        return jax.lax.scan(once, (strong(state), steps, jnp.float32(0.0)), None, length=repeat)[0]

    def advance(key: Any, episodes: Open, actions: Any) -> tuple[Open, dict[str, Any]]:
        state, steps, reward = jax.vmap(move)(episodes.state, episodes.steps, actions)
        terminated = state.done > 0
        truncated = (steps >= most) & ~terminated
        ended = terminated | truncated
        after = strong(Open(state, steps, episodes.numbers))

        def renew() -> Open:
            fresh = begin(key, episodes.numbers + ended)
            return jax.tree.map(
                lambda new, old: jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), new, old), fresh, after
            )

        told = {"reward": reward, "terminated": terminated, "truncated": truncated, "final_observation": state.obs}
        return jax.lax.cond(ended.any(), renew, lambda: after), told

    return Program(jax.jit(begin), jax.jit(advance), *space_sizes(environment))


class BraxVector(VectorEnv):
    """N environments stepped by one call of a compiled program. Nothing is compiled before the first reset."""

    backend = "native"

    def __init__(
        self, compiled: Program, spec: EnvironmentSpec, num_envs: int, seeds: Seeds, purpose: str, *, fps: float
    ) -> None:
        observation_space, action_space = spaces(compiled.observation_size, compiled.action_size)
        super().__init__(spec=spec, num_envs=num_envs, observation_space=observation_space, action_space=action_space)
        self.render_fps = fps
        self._program = compiled
        self._purpose = purpose
        self._key = jax_key(seeds.child(purpose).integer())
        self._slots = (Slot(num_envs, observation_space), Slot(num_envs, observation_space))
        self._turn = 0
        self._check = FiniteCheck(spec.id, self._slots[0])
        self._open: Open | None = None
        self._numbers = np.full(num_envs, -1, dtype=np.int32)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._returns = np.zeros(num_envs, dtype=np.float64)

    @property
    def observation(self) -> np.ndarray:
        """[N, ...] the newest observation."""
        return self._slots[self._turn].observation

    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere; with `seeds`, with numbering anew from that tree."""
        if seeds is not None:
            self._key = jax_key(seeds.child(self._purpose).integer())
            self._numbers.fill(-1)
            self.episode_counts.fill(0)
        self._numbers += 1
        self._lengths.fill(0)
        self._returns.fill(0.0)
        self._open = self._program.begin(self._key, self._numbers.copy())
        self._turn ^= 1
        self.observation[...] = self._open.state.obs
        self._check.first(self.observation)
        return self.observation

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment."""
        assert self._open is not None, "reset comes before the first step"
        rows = np.asarray(actions, dtype=np.float32).reshape(self.num_envs, -1)
        self._open, told = self._program.advance(self._key, self._open, rows)
        self._turn ^= 1
        slot = self._slots[self._turn]
        slot.observation[...] = self._open.state.obs
        for name, array in told.items():
            getattr(slot, name)[...] = array
        self._lengths += 1
        self._returns += slot.reward
        step = Step(slot.observation, slot.reward, slot.terminated, slot.truncated)
        ended = np.flatnonzero(step.ended)
        if len(ended):
            step.final_observation = slot.final_observation
        self._check(step, lambda index: (int(self._numbers[index]), int(self._lengths[index])))
        if len(ended):
            step.episodes = self._finish(ended, slot.terminated)
        return step

    def _finish(self, ended: np.ndarray, terminated: np.ndarray) -> list[Episode]:
        episodes = [
            Episode(
                int(index),
                int(self._numbers[index]),
                float(self._returns[index]),
                float(self._returns[index]),
                int(self._lengths[index]),
                bool(terminated[index]),
            )
            for index in ended
        ]
        self.episode_counts[ended] += 1
        self._numbers[ended] += 1
        self._lengths[ended] = 0
        self._returns[ended] = 0.0
        return episodes

    def get_state(self) -> dict[str, Any]:
        """Every array of the simulation, the key, and the bookkeeping of open episodes."""
        import jax

        leaves = [] if self._open is None else jax.tree.leaves(self._open)
        return {
            "simulation": {str(index): np.array(leaf) for index, leaf in enumerate(leaves)},
            "key": self._key.copy(),
            "numbers": self._numbers.copy(),
            "lengths": self._lengths.copy(),
            "returns": self._returns.copy(),
            "episode_counts": self.episode_counts.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue exactly where `get_state` was called."""
        if len(state["lengths"]) != self.num_envs:
            raise ConfigError(
                f"The saved state of {self.spec.id} has {len(state['lengths'])} environments, this one {self.num_envs}."
            )
        self._key = np.asarray(state["key"], dtype=np.uint32)
        self._numbers[:] = state["numbers"]
        self._lengths[:] = state["lengths"]
        self._returns[:] = state["returns"]
        self.episode_counts[:] = state["episode_counts"]
        self._open = self._simulation(state["simulation"]) if state["simulation"] else None
        if self._open is not None:
            self.observation[...] = self._open.state.obs

    def _simulation(self, saved: dict[str, np.ndarray]) -> Open:
        """Saved arrays in the places that they were taken from."""
        import jax
        import jax.numpy as jnp

        shaped, structure = jax.tree.flatten(jax.eval_shape(self._program.begin, self._key, self._numbers))
        arrays = [saved[str(index)] for index in range(len(saved))]
        if [(leaf.shape, leaf.dtype) for leaf in shaped] != [(array.shape, array.dtype) for array in arrays]:
            raise ConfigError(
                f"The saved state of {self.spec.id} does not fit this version of Brax, or other env_kwargs. "
                "Install the version that saved it, or start a new run with --init-from-run."
            )
        return jax.tree.unflatten(structure, [jnp.asarray(array) for array in arrays])

    def render(self) -> np.ndarray | None:
        """Nothing: single environments draw."""
        return None

    def close(self) -> None:
        """Let go of the simulation's arrays."""
        self._open = None


def options_text(env_kwargs: dict[str, Any]) -> str:
    """Arguments of an environment as text that can be compared."""
    return json.dumps(env_kwargs, sort_keys=True)
