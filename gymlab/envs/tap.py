"""Listening to an environment below every wrapper: its own observations and rewards."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


class OwnSteps(gym.Wrapper):
    """Keeps the newest observation of the environment itself, and its own reward since somebody asked.

    One step of the agent may be several of the environment: their rewards add up, the last observation counts.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation: Any = None
        self.seed: int | None = None
        """With which the open episode began."""
        self._reward = 0.0
        if hasattr(env, "repeat"):
            # Offered only where the environment does: others are repeated step by step.
            self.repeat = self._listened_repeat

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self.seed, self._reward = seed, 0.0
        self.observation, info = self.env.reset(seed=seed, options=options)
        return self.observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and remember what came of it."""
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        self._reward += float(reward)
        return self.observation, reward, terminated, truncated, info

    def _listened_repeat(self, action: Any, count: int) -> tuple[Any, float, bool, bool, dict[str, Any], int]:
        environment: Any = self.env
        self.observation, reward, terminated, truncated, info, taken = environment.repeat(action, count)
        self._reward += float(reward)
        return self.observation, reward, terminated, truncated, info, taken

    def take_reward(self) -> float:
        """The environment's own reward since the last time, or since the episode began."""
        reward, self._reward = self._reward, 0.0
        return reward
