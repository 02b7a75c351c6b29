"""Rewards of console games."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from gymlab.envs.wrappers.registry import EnvWrapperRegistry
from gymlab.errors import ConfigError


@EnvWrapperRegistry.register
class RetroSuperMarioBros_RewardShaper(gym.Wrapper):
    """Replaces the reward by progress to the right, less time, plus score, with death and completion on top.

    reward_scale * (x_position_scale * dx + step_penalty + death_penalty or level_complete_bonus + score_scale * dscore).
    A dx beyond `x_reset_threshold` in either direction is a change of level and counts as 0. Each life lost is a death;
    a level is complete when its number grows, or when the episode terminates with no life lost.
    """

    def __init__(
        self,
        env: gym.Env,
        reward_scale: float = 0.01,
        death_penalty: float = -150.0,
        level_complete_bonus: float = 50.0,
        step_penalty: float = -0.1,
        x_position_scale: float = 1.0,
        score_scale: float = 0.1,
        x_reset_threshold: float = -100.0,
    ) -> None:
        super().__init__(env)
        self._scale = float(reward_scale)
        self._death, self._complete = float(death_penalty), float(level_complete_bonus)
        self._step_penalty = float(step_penalty)
        self._x_scale, self._score_scale = float(x_position_scale), float(score_scale)
        self._x_limit = abs(float(x_reset_threshold))
        self._before: dict[str, int] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode at its first position."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._before = _standing(info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and pay for what has changed."""
        observation, _, terminated, truncated, info = self.env.step(action)
        before, now = self._before, _standing(info)
        self._before = now
        moved = now["x"] - before["x"]
        total = self._step_penalty + self._score_scale * (now["score"] - before["score"])
        if abs(moved) <= self._x_limit:
            total += self._x_scale * moved
        if now["lives"] < before["lives"]:
            total += self._death
        elif terminated or now["level"] > before["level"]:
            total += self._complete
        shaped = self._scale * total
        return observation, shaped, terminated, truncated, {**info, "shaping_reward": shaped}


def _standing(info: dict[str, Any]) -> dict[str, int]:
    """Position in the level, score, lives and level, from the variables that the game's data file names."""
    try:
        return {
            "x": int(info["xscrollHi"]) * 256 + int(info["xscrollLo"]),
            "score": int(info["score"]),
            "lives": int(info["lives"]),
            "level": int(info["levelHi"]) * 256 + int(info["levelLo"]),
        }
    except KeyError as error:
        raise ConfigError(
            f"RetroSuperMarioBros_RewardShaper fits Super Mario Bros only: info has no {error.args[0]}, "
            f"but {', '.join(info) or 'nothing'}."
        ) from error
