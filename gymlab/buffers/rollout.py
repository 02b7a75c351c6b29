"""On-policy data: a rollout of T steps in N environments, the storage it is written to, and the buffer it goes through."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np


@dataclass(slots=True)
class Rollout:
    """T steps of N environments, time first.

        observations[t] --actions[t]--> rewards[t], terminated[t], truncated[t]

    `bootstrap_observations` are the true next observations that are nobody's observations[t+1]: last ones of truncated
    episodes, and those behind the last row. `bootstrap_rows` says whose (row t * N + n).
    """

    observations: np.ndarray
    """[T, N, ...] as the network takes them."""
    actions: np.ndarray
    """[T, N, ...] as sampled, before clipping to the environment's bounds."""
    log_probs: np.ndarray
    """[T, N] of the policy that acted."""
    values: np.ndarray
    """[T, N] V(observations) at collection."""
    bootstrap_values: np.ndarray
    """[K] V(bootstrap_observations) at collection."""
    rewards: np.ndarray
    """[T, N] as the agent is shown them."""
    terminated: np.ndarray
    truncated: np.ndarray
    bootstrap_observations: np.ndarray
    """[K, ...]."""
    bootstrap_rows: np.ndarray
    """[K] int."""
    valid: np.ndarray | None = None
    """[T, N] False on dead rows of next-step autoreset; None: all rows are real."""
    action_masks: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Rows, dead ones included."""
        return self.rewards.size

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for _, array in self.arrays())

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names and arrays that are there."""
        for item in fields(self):
            array = getattr(self, item.name)
            if array is not None:
                yield item.name, array

    def copy(self) -> Rollout:
        """The same on memory of its own."""
        return Rollout(**{name: array.copy() for name, array in self.arrays()})

    def next_values(self, values: np.ndarray, bootstrap_values: np.ndarray) -> np.ndarray:
        """V(true next observation) [T, N]: the row below, except where an episode was cut."""
        shifted = np.empty_like(values)
        shifted[:-1] = values[1:]
        shifted[-1] = 0
        shifted.reshape(-1)[self.bootstrap_rows] = bootstrap_values
        return shifted

    def valid_rows(self) -> np.ndarray:
        """Indices of real rows in the flattened [T * N] order."""
        return np.arange(self.size) if self.valid is None else np.flatnonzero(self.valid)

    def flat(self, array: np.ndarray) -> np.ndarray:
        """[T, N, ...] as [T * N, ...]."""
        return array.reshape(self.size, *array.shape[2:])


class RolloutStorage:
    """Memory for the longest rollout, made once and written over by each collection."""

    def __init__(
        self,
        steps: int,
        num_envs: int,
        observation: tuple[tuple[int, ...], np.dtype],
        action: tuple[tuple[int, ...], Any],
        parameter_size: int,
    ) -> None:
        self.observations = np.empty((steps, num_envs, *observation[0]), observation[1])
        self.actions = np.empty((steps, num_envs, *action[0]), action[1])
        self.parameters = np.empty((steps, num_envs, parameter_size), np.float32)
        """Parameters of the distributions that were sampled from."""
        self.values = np.empty((steps, num_envs), np.float32)
        self.rewards = np.empty((steps, num_envs), np.float32)
        self.terminated = np.empty((steps, num_envs), np.bool_)
        self.truncated = np.empty((steps, num_envs), np.bool_)
        self.valid = np.empty((steps, num_envs), np.bool_)
        self.action_masks: np.ndarray | None = None

    @property
    def steps(self) -> int:
        """Rows in time that there is memory for."""
        return len(self.rewards)

    def grow(self) -> None:
        """Memory for twice as many rows; what is written stays."""
        for name, array in vars(self).items():
            if array is not None:
                setattr(self, name, np.concatenate([array, np.empty_like(array)]))

    def masks(self, num_envs: int, actions: int) -> np.ndarray:
        """Storage for action masks, made when the environment first gives one."""
        if self.action_masks is None:
            self.action_masks = np.empty((len(self.rewards), num_envs, actions), np.bool_)
        return self.action_masks

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in vars(self).values() if array is not None)


class RolloutBuffer:
    """Holds the newest rollout until it is learned from. With a `capacity` (env steps) older rollouts stay for reuse.

    `sample` gives the newest rollout first and the stored ones behind it.
    """

    def __init__(self, capacity: int = 0) -> None:
        self.capacity = capacity
        self._newest: Rollout | None = None
        self._stored: deque[Rollout] = deque()

    def add(self, trajectory: Rollout) -> None:
        """Take in a rollout."""
        self._newest = trajectory

    def ready(self) -> bool:
        """Whether a rollout waits to be learned from."""
        return self._newest is not None

    def sample(self) -> list[Rollout]:
        """The newest rollout, then older ones; the newest is then old (or gone, without capacity)."""
        if self._newest is None:
            raise IndexError("No rollout to learn from: collect one first.")
        batch = [self._newest, *self._stored]
        if self.capacity:
            self._stored.append(self._newest.copy())
            while len(self._stored) > 1 and sum(rollout.size for rollout in self._stored) > self.capacity:
                self._stored.popleft()
        self._newest = None
        return batch

    def write_back(self, update: Any) -> None:
        """Rollouts carry nothing that an update changes."""

    def get_state(self) -> dict[str, Any]:
        """Arrays of all rollouts held."""
        newest = [] if self._newest is None else [dict(self._newest.copy().arrays())]
        return {"newest": newest, "stored": [dict(rollout.arrays()) for rollout in self._stored]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        newest = [Rollout(**arrays) for arrays in state["newest"]]
        self._newest = newest[0] if newest else None
        self._stored = deque(Rollout(**arrays) for arrays in state["stored"])

    @property
    def nbytes(self) -> int:
        """Memory of the rollouts held."""
        held = [*self._stored, *([self._newest] if self._newest is not None else [])]
        return sum(rollout.nbytes for rollout in held)
