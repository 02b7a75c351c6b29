"""Shaping of Doom's rewards."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from gymlab.envs.wrappers.registry import EnvWrapperRegistry
from gymlab.errors import ConfigError


@EnvWrapperRegistry.register
class VizDoom_RewardShaper(gym.Wrapper):
    """Pays for moving and turning and charges for idling and shooting, for ammunition without reward, for lost health.

    A step that presses nothing costs `noop_penalty`; one that moves or turns earns `move_reward` or `turn_reward`, once
    whatever the number of buttons; an attack costs `attack_penalty`. Ammunition spent in a step whose reward is not
    positive costs `ammo_waste_penalty` a round, lost health `health_loss_penalty` a point. Sum in `shaping_reward`.
    """

    def __init__(
        self,
        env: gym.Env,
        noop_penalty: float = 0.005,
        move_reward: float = 0.002,
        turn_reward: float = 0.002,
        attack_penalty: float = 0.0,
        ammo_waste_penalty: float = 0.0,
        health_loss_penalty: float = 0.0,
    ) -> None:
        super().__init__(env)
        self._game: Any = env.unwrapped
        if not hasattr(self._game, "pressed"):
            raise ConfigError(f"VizDoom_RewardShaper fits VizDoom only, not {type(self._game).__name__}.")
        self._noop, self._move, self._turn = float(noop_penalty), float(move_reward), float(turn_reward)
        self._attack = float(attack_penalty)
        self._ammo_waste, self._health_loss = float(ammo_waste_penalty), float(health_loss_penalty)
        self._before: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with its first health and ammunition."""
        observation, self._before = self.env.reset(seed=seed, options=options)
        return observation, self._before

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and add what the buttons and their consequences are worth."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        shaping = self._of_buttons(self._game.pressed) - self._of_losses(info, float(reward))
        self._before = info
        return observation, float(reward) + shaping, terminated, truncated, {**info, "shaping_reward": shaping}

    def _of_buttons(self, pressed: list[str]) -> float:
        if not pressed:
            return -self._noop
        value = 0.0
        if any(name.startswith("MOVE") for name in pressed):
            value += self._move
        if any(name.startswith("TURN") for name in pressed):
            value += self._turn
        return value - self._attack if "ATTACK" in pressed else value

    def _of_losses(self, info: dict[str, Any], reward: float) -> float:
        before = self._before
        loss = self._health_loss * max(0.0, before["health"] - info["health"])
        # Another weapon has another count.
        if reward <= 0 and before["weapon"] == info["weapon"]:
            loss += self._ammo_waste * max(0.0, before["ammo"] - info["ammo"])
        return loss
