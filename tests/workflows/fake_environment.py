"""A vector environment that a test writes down in a line: what is observed, what is rewarded, how episodes end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from gymlab.envs.step import Episode, Step


class FakeEnvironment:
    """N copies of one task. Observations are `observe(generator, clock [N])`, rewards `reward(observation, action)`.

    An episode is `length` steps long and ends by truncation or termination. Resets happen in the same step, or in the next
    one: then a dead row follows each episode.
    """

    resumable = True

    def __init__(
        self,
        num_envs: int,
        action_space: Space,
        *,
        observation_space: Space | None = None,
        observe: Callable[[np.random.Generator, np.ndarray], np.ndarray] | None = None,
        reward: Callable[[np.ndarray, np.ndarray], Any] = lambda observation, action: 1.0,
        length: int = 5,
        truncate: bool = True,
        next_step_reset: bool = False,
        action_mask: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        self.num_envs = num_envs
        self.action_space = action_space
        self.observation_space = observation_space or spaces.Box(-1, 1, (3,), np.float32)
        self._observe = observe or (lambda generator, clock: generator.normal(size=(num_envs, 3)).astype(np.float32))
        self._reward = reward
        self.length = length
        self.truncate = truncate
        self.next_step_reset = next_step_reset
        self.action_mask = action_mask
        self.generator = np.random.default_rng(seed)
        self.clock = np.zeros(num_envs, int)
        self.ended = np.zeros(num_envs, bool)
        self.returns = np.zeros(num_envs)
        self.resets = 0
        self.actions: list[np.ndarray] = []

    def reset(self) -> np.ndarray:
        self.resets += 1
        self.clock[:] = 0
        self.ended[:] = False
        self.returns[:] = 0
        self.observation = self._observe(self.generator, self.clock)
        return self.observation

    def step(self, actions: np.ndarray) -> Step:
        assert all(self.action_space.contains(action) for action in actions), actions
        self.actions.append(np.array(actions))
        dead = self.ended.copy() if self.next_step_reset else np.zeros(self.num_envs, bool)
        reward = np.broadcast_to(self._reward(self.observation, actions), (self.num_envs,)).astype(np.float32)
        reward = np.where(dead, 0, reward)
        self.returns += reward
        self.clock = np.where(dead, 0, self.clock + 1)
        ended = self.clock >= self.length
        episodes = [
            Episode(i, 0, self.returns[i], self.returns[i], self.length, not self.truncate)
            for i in np.flatnonzero(ended)
        ]
        self.returns[ended] = 0
        final = self._observe(self.generator, self.clock)
        observation = final
        if not self.next_step_reset:
            self.clock = np.where(ended, 0, self.clock)
            fresh = self._observe(self.generator, self.clock)
            observation = np.where(ended.reshape(-1, *[1] * (final.ndim - 1)), fresh, final)
        self.ended = ended
        self.observation = observation
        nothing = np.zeros(self.num_envs, bool)
        return Step(
            observation=observation,
            reward=reward.astype(np.float32),
            terminated=nothing if self.truncate else ended,
            truncated=ended if self.truncate else nothing,
            final_observation=final if ended.any() else None,
            valid=~dead if self.next_step_reset else None,
            action_mask=self.action_mask,
            episodes=episodes,
        )


def identity(num_envs: int = 8, size: int = 4, **options: Any) -> FakeEnvironment:
    """Reward 1 for naming the symbol that is shown."""

    def observe(generator: np.random.Generator, clock: np.ndarray) -> np.ndarray:
        return generator.integers(size, size=num_envs)

    return FakeEnvironment(
        num_envs,
        spaces.Discrete(size),
        observation_space=spaces.Discrete(size),
        observe=observe,
        reward=lambda observation, action: observation == action,
        **options,
    )


def clocked(num_envs: int, length: int, **options: Any) -> FakeEnvironment:
    """Reward 1 at every step; the observation is how much of the episode is over."""
    return FakeEnvironment(
        num_envs,
        spaces.Discrete(2),
        observation_space=spaces.Box(0, 1, (1,), np.float32),
        observe=lambda generator, clock: (clock[:, None] / length).astype(np.float32),
        length=length,
        **options,
    )
