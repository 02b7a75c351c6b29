"""The vector environment: N copies of one environment behind the one step format, whatever steps them.

`step` takes actions as the environment should see them, in `action_space` (a Discrete with an offset counts from its
offset, a Box keeps its bounds). Clipping and offsets belong to the workflow, which alone knows what its policy sampled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from gymlab.envs.pace import Pace
from gymlab.envs.recording import Film, recorder
from gymlab.envs.step import Step
from gymlab.errors import EnvironmentFailure, NonFiniteError


class Seeds(Protocol):
    """A node of the seed tree."""

    def child(self, *keys: str | int) -> Seeds:
        """The node below, by names and numbers."""

    def integer(self) -> int:
        """A seed for libraries that take an int."""

    def generator(self) -> np.random.Generator:
        """A fresh generator at this node."""


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """What is registered about an environment."""

    id: str
    reward_threshold: float | None = None
    """Mean return that counts as solved."""
    max_episode_steps: int | None = None
    """Time limit in the environment's own steps."""


class VectorEnv(ABC):
    """N environments stepped together. Every backend resets a finished episode by itself and gives `Step`."""

    backend: str = ""
    """How the environments are stepped: native, sync or async."""
    halves: tuple[slice, ...] = ()
    """The two halves of the environments, where `step_async` and `step_wait` step each by itself; else empty."""

    def __init__(
        self,
        *,
        spec: EnvironmentSpec,
        num_envs: int,
        observation_space: gym.Space,
        action_space: gym.Space,
        raw_observation_space: gym.Space | None = None,
    ) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self.observation_space = observation_space
        """Of one environment, after wrappers and flattening of dicts and tuples."""
        self.action_space = action_space
        self.raw_observation_space = raw_observation_space or observation_space
        """Of one environment, after wrappers and before flattening."""
        self.action_mask: np.ndarray | None = None
        """[N, n_actions] bool for the newest observation; None when the environment gives none."""
        self.episode_counts = np.zeros(num_envs, dtype=np.int64)
        """Episodes finished in each environment."""
        self.pace: Pace | None = None
        """What one step of one environment takes, where an automatic choice measured it."""
        self.by_turns = False
        """Whether who collects steps its halves by turns."""
        self.notice = ""
        """What is to be said about the environments before training, such as their protocol."""
        self.resumable = True
        """Whether `set_state` continues unfinished episodes exactly."""
        self.resume_note = ""
        """Why not, where `resumable` is False."""

    @property
    @abstractmethod
    def observation(self) -> np.ndarray:
        """[N, ...] the newest observation: what to act on next."""

    @abstractmethod
    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere. With `seeds`, episode numbering starts anew from that tree."""

    @abstractmethod
    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each environment."""

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Nested dicts of arrays, numbers and strings from which `set_state` continues."""

    @abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from what `get_state` gave; `observation` and `action_mask` are then as they were."""

    @abstractmethod
    def render(self) -> np.ndarray | None:
        """A picture of environment 0, or None when it was made without rendering."""

    render_fps: float = 30.0
    """Frames a second at which a video of this environment plays as it was meant."""

    @abstractmethod
    def close(self) -> None:
        """Free windows and processes."""

    def get_return_threshold(self) -> float | None:
        """Mean return that counts as solved, as the environment was registered."""
        return self.spec.reward_threshold

    def get_max_episode_steps(self) -> int | None:
        """Time limit in the environment's own steps."""
        return self.spec.max_episode_steps

    def is_rgb_env(self) -> bool:
        """Whether observations are images."""
        return is_image_space(self.observation_space)

    @property
    def stepped_by(self) -> str:
        """The backend in words."""
        return self.backend

    def recorder(self, film: Film) -> AbstractContextManager[None]:
        """Film environment 0 while it is stepped; it must have been made with rendering.

        with VideoWriter("episode.mp4", environment.render_fps) as film, environment.recorder(film):
            ...
        """
        return recorder(self, film)

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def is_image_space(space: gym.Space) -> bool:
    """Whether observations are uint8 arrays of rank 3."""
    return isinstance(space, gym.spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


class Slot:
    """One set of output arrays. A vector env alternates between two, so that what it returned last stays whole."""

    __slots__ = ("final_observation", "observation", "reward", "terminated", "truncated")

    def __init__(self, num_envs: int, space: gym.Space) -> None:
        shape, dtype = observation_layout(space)
        self.observation = np.zeros((num_envs, *shape), dtype=dtype)
        self.final_observation = np.zeros((num_envs, *shape), dtype=dtype)
        self.reward = np.zeros(num_envs, dtype=np.float32)
        self.terminated = np.zeros(num_envs, dtype=np.bool_)
        self.truncated = np.zeros(num_envs, dtype=np.bool_)


def observation_layout(space: gym.Space) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype in which observations of `space` are stored."""
    if space.shape is None or space.dtype is None:
        raise EnvironmentFailure(
            f"Observations of {space} have no fixed shape. "
            "Supported: Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of them."
        )
    return space.shape, np.dtype(space.dtype)


class FiniteCheck:
    """Finds NaN and Inf in what environments returned: one `isfinite` an array, about 1 µs a step of 8 small envs.

    With `rows`, in steps that hold only these environments.
    """

    def __init__(self, env_id: str, slot: Slot, rows: slice = slice(None)) -> None:
        self._env_id = env_id
        self._floats = slot.observation.dtype.kind == "f"
        self._reward = np.empty(slot.reward[rows].shape, dtype=np.bool_)
        self._observation = np.empty(slot.observation[rows].shape, dtype=np.bool_)
        self._first = rows.start or 0

    def __call__(self, step: Step, where: Callable[[int], tuple[int, int]]) -> None:
        """Raise NonFiniteError for the first bad row; `where` gives episode and step of an environment's transition."""
        np.isfinite(step.reward, out=self._reward)
        if 0 in self._reward.tobytes():
            self._fail("reward", step.reward, self._reward, where, step)
        if not self._floats:
            return
        np.isfinite(step.observation, out=self._observation)
        if 0 in self._observation.tobytes():
            self._fail("observation", step.observation, self._observation, where, step)
        if step.final_observation is not None:
            np.isfinite(step.final_observation, out=self._observation)
            self._observation[~step.ended] = True
            if 0 in self._observation.tobytes():
                self._fail("final observation", step.final_observation, self._observation, where, step)

    def first(self, observation: np.ndarray) -> None:
        """Raise NonFiniteError for a bad observation of a reset."""
        if self._floats:
            np.isfinite(observation, out=self._observation)
            if 0 in self._observation.tobytes():
                self._fail("first observation", observation, self._observation, lambda index: (0, 0))

    def _fail(
        self,
        field: str,
        array: np.ndarray,
        finite: np.ndarray,
        where: Callable[[int], tuple[int, int]],
        step: Step | None = None,
    ) -> None:
        row = int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
        index = self._first + row
        episode, number = where(index)
        article = "an" if field.startswith("o") else "a"
        value = np.array2string(array[row], threshold=8, precision=4)
        raise NonFiniteError(
            f"{self._env_id} returned {article} {field} that is not finite: {value} in environment {index}, "
            f"episode {episode}, step {number}. Look at the environment's reward and dynamics "
            "(a division by zero, a diverging simulation), or clip in a wrapper of your own.",
            tensor=field.replace(" ", "_"),
            data={"step": step, "environment": index} if step is not None else {field: array},
        )
