"""Environments of ours that step all copies in a few numpy calls and reset in the same step: no row is ever dead."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from itertools import repeat
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gymlab.envs.step import Episode, Step
from gymlab.envs.vector import EnvironmentSpec, Seeds, Slot, VectorEnv
from gymlab.errors import ConfigError, EnvironmentFailure, NonFiniteError

NATIVE: dict[str, type[NativeVector]] = {}
"""Native implementations by environment id."""


def register_native(*env_ids: str) -> Callable[[type[NativeVector]], type[NativeVector]]:
    """Class decorator: step these environments with the decorated class where nothing asks for sub-environments."""

    def add(implementation: type[NativeVector]) -> type[NativeVector]:
        NATIVE.update(dict.fromkeys(env_ids, implementation))
        return implementation

    return add


def constant(value: float, dtype: type = np.float64) -> np.ndarray:
    """A number for ufuncs, which take a 0-d array a third faster than a Python float."""
    return np.array(value, dtype=dtype)


class NativeVector(VectorEnv):
    """Base of native environments: a subclass holds its state in arrays and says how it begins, moves and looks.

    Its rewards and observations are finite by construction, so nothing is checked a step.
    """

    backend = "native"
    options: ClassVar[frozenset[str]] = frozenset()
    """Entries of `env_kwargs` that the implementation understands."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_envs: int,
        seeds: Seeds,
        purpose: str,
        *,
        observation_space: gym.Space,
        action_space: gym.Space,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(spec=spec, num_envs=num_envs, observation_space=observation_space, action_space=action_space)
        self.render_mode = render_mode
        self._purpose = purpose
        self._generator = seeds.child(purpose).generator()
        self._slots = (Slot(num_envs, observation_space), Slot(num_envs, observation_space))
        self._turn = 0
        self._clock = 0
        self._started = np.zeros(num_envs, dtype=np.int64)
        self._returns = np.zeros(num_envs, dtype=np.float64)
        self._episode_indices = np.full(num_envs, -1, dtype=np.int64)
        self._limit = spec.max_episode_steps
        self._next_limit = 0
        self._counts_from_0 = isinstance(action_space, gym.spaces.Discrete) and action_space.start >= 0

    @classmethod
    def obstacle(cls, env_kwargs: dict[str, Any]) -> str:
        """Why these arguments need sub-environments; empty when they do not."""
        unknown = set(env_kwargs) - cls.options
        return f"the native version does not know env_kwargs {sorted(unknown)}." if unknown else ""

    @abstractmethod
    def _arrays(self) -> dict[str, np.ndarray]:
        """The state arrays by name, written in place by `set_state`."""

    @abstractmethod
    def _begin(self, indices: np.ndarray) -> None:
        """Draw initial states for these environments from `self._generator`."""

    @abstractmethod
    def _advance(self, actions: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> dict[str, Any]:
        """Move every environment by one step; fill `reward` and `terminated`; return info arrays."""

    @abstractmethod
    def _observe(self, turn: int) -> None:
        """Write the observations of the present state to `self._slots[turn].observation`."""

    def _succeeded(self, ended: np.ndarray) -> np.ndarray | None:
        """Whether these episodes met their goal, for a task that has one."""
        return None

    @property
    def observation(self) -> np.ndarray:
        """[N, ...] the newest observation."""
        return self._slots[self._turn].observation

    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere; with `seeds`, from a fresh generator and with numbering anew."""
        if seeds is not None:
            self._generator = seeds.child(self._purpose).generator()
            self._episode_indices.fill(-1)
            self.episode_counts.fill(0)
        self._restart(np.arange(self.num_envs))
        self._turn ^= 1
        self._observe(self._turn)
        return self.observation

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment."""
        # Tables of actions would count negative ones from their end. Those have a byte of ones, which is found in 0.15 µs.
        if self._counts_from_0 and 255 in actions.tobytes():
            self._refuse_negative(actions)
        self._turn ^= 1
        slot = self._slots[self._turn]
        self._clock += 1
        info = self._advance(actions, slot.reward, slot.terminated)
        self._observe(self._turn)
        np.add(self._returns, slot.reward, out=self._returns)
        slot.truncated.fill(False)
        final_observation = None
        episodes: list[Episode] = []
        over_limit = self._clock >= self._next_limit
        if over_limit or 1 in slot.terminated.tobytes():
            if over_limit and self._limit is not None:
                np.greater_equal(self._clock - self._started, self._limit, out=slot.truncated)
                slot.truncated &= ~slot.terminated
            ended = (slot.terminated | slot.truncated).nonzero()[0]
            if len(ended):
                final_observation = slot.final_observation
                final_observation[ended] = slot.observation[ended]
                episodes = self._finish(ended, slot.terminated)
                self._observe(self._turn)
            if over_limit:
                self._schedule_limit()
        return Step(
            slot.observation,
            slot.reward,
            slot.terminated,
            slot.truncated,
            final_observation,
            None,
            self.action_mask,
            episodes,
            info,
        )

    def _refuse_negative(self, actions: np.ndarray) -> None:
        if np.min(actions) < 0:
            raise EnvironmentFailure(f"{self.spec.id} takes actions of {self.action_space}, not {actions!r}.")

    def _finish(self, ended: np.ndarray, terminated: np.ndarray) -> list[Episode]:
        returns = self._returns[ended].tolist()
        success = self._succeeded(ended)
        rows = zip(
            ended.tolist(),
            self._episode_indices[ended].tolist(),
            returns,
            returns,
            (self._clock - self._started[ended]).tolist(),
            terminated[ended].tolist(),
            repeat(None) if success is None else success.tolist(),
            repeat(False),
            repeat(None),
            repeat(None),
            strict=False,
        )
        episodes = [Episode._make(row) for row in rows]
        self.episode_counts[ended] += 1
        self._restart(ended)
        return episodes

    def _restart(self, indices: np.ndarray) -> None:
        self._episode_indices[indices] += 1
        self._returns[indices] = 0.0
        self._started[indices] = self._clock
        self._begin(indices)

    def _schedule_limit(self) -> None:
        # Endings by time are looked for only when the oldest episode can have reached the limit. An episode that ends
        # earlier makes the bound too low, never too high.
        never = np.iinfo(np.int64).max
        self._next_limit = int(never if self._limit is None else self._started.min() + self._limit)

    def get_state(self) -> dict[str, Any]:
        """Copies of the state arrays, the generator's state as JSON, and the bookkeeping of open episodes."""
        return {
            "arrays": {name: array.copy() for name, array in self._arrays().items()},
            "lengths": self._clock - self._started,
            "returns": self._returns.copy(),
            "episode_indices": self._episode_indices.copy(),
            "episode_counts": self.episode_counts.copy(),
            "generator": json.dumps(self._generator.bit_generator.state),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue exactly where `get_state` was called."""
        if len(state["lengths"]) != self.num_envs:
            raise ConfigError(
                f"The saved state of {self.spec.id} has {len(state['lengths'])} environments, this one {self.num_envs}."
            )
        for name, array in self._arrays().items():
            array[...] = state["arrays"][name]
        self._clock = int(np.max(state["lengths"]))
        self._started[:] = self._clock - np.asarray(state["lengths"])
        self._returns[:] = state["returns"]
        self._episode_indices[:] = state["episode_indices"]
        self.episode_counts[:] = state["episode_counts"]
        self._generator.bit_generator.state = json.loads(state["generator"])
        self._schedule_limit()
        self._observe(self._turn)


class GymnasiumNative(NativeVector):
    """Native version of one of Gymnasium's own: spaces and constants are taken from that one, and it draws the pictures.

    Its further arguments are `env_kwargs`.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        num_envs: int,
        seeds: Seeds,
        purpose: str,
        *,
        render_mode: str | None = None,
        **env_kwargs: Any,
    ) -> None:
        self._env_kwargs = env_kwargs
        model = self._make(spec.id, None)
        super().__init__(
            spec,
            num_envs,
            seeds,
            purpose,
            observation_space=model.observation_space,
            action_space=model.action_space,
            render_mode=render_mode,
        )
        self._model: Any = model.unwrapped
        self._viewer: gym.Env | None = None
        self.render_fps = float(model.metadata["render_fps"])

    def _make(self, env_id: str, render_mode: str | None) -> gym.Env:
        # Making from a spec leaves out the notice that a version is old, which the family has given.
        return gym.make(gym.spec(env_id), render_mode=render_mode, disable_env_checker=True, **self._env_kwargs)

    @abstractmethod
    def _pose(self, viewer: Any) -> None:
        """Put the state of environment 0 into Gymnasium's own."""

    def _fresh(self, index: int) -> bool:
        """Whether the episode of an environment has just begun."""
        return bool(self._started[index] == self._clock)

    def render(self) -> np.ndarray | None:
        """Environment 0, drawn by Gymnasium's own."""
        if self.render_mode is None:
            return None
        if self._viewer is None:
            self._viewer = self._make(self.spec.id, self.render_mode)
            self._viewer.reset(seed=0)
        self._pose(self._viewer.unwrapped)
        frame = self._viewer.render()
        return None if frame is None else np.asarray(frame)

    def close(self) -> None:
        """Close the viewer."""
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None


class ActionColumn:
    """One continuous action for each environment, as float32 and finite: a NaN would stay in the state for good."""

    def __init__(self, env_id: str, num_envs: int) -> None:
        self.values = np.zeros(num_envs, dtype=np.float32)
        self._env_id = env_id
        self._finite = np.zeros(num_envs, dtype=np.bool_)

    def take(self, actions: np.ndarray) -> np.ndarray:
        """[N, 1] actions as [N]; raise NonFiniteError where one is not finite."""
        self.values[...] = np.reshape(actions, -1)
        np.isfinite(self.values, out=self._finite)
        if 0 in self._finite.tobytes():
            index = int(self._finite.argmin())
            raise NonFiniteError(
                f"{self._env_id} was given the action {self.values[index]} in environment {index}. "
                "Look at the policy: its parameters or its observations are not finite.",
                tensor="action",
                data={"action": self.values.copy()},
            )
        return self.values
