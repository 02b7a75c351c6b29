"""Reward shaping. A potential phi adds gamma * phi(s') - phi(s), with phi = 0 at termination: the best policy stays the
best one (Ng, Harada, Russell 1999). Without the zero, a policy would be paid for where its episode ends.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gymlab.envs.wrappers.registry import EnvWrapperRegistry, WrapperContext
from gymlab.errors import ConfigError


class PotentialShaper(gym.Wrapper):
    """Base of shapers by a potential; info has `shaping_reward`, `potential_prev`, `potential_curr`."""

    def __init__(self, env: gym.Env, gamma: float | None, context: WrapperContext | None) -> None:
        super().__init__(env)
        self.gamma = (context or WrapperContext()).gamma if gamma is None else float(gamma)
        self._previous = 0.0

    @abstractmethod
    def potential(self, observation: Any) -> float:
        """How good it is to be where the observation says."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode at its first potential."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._previous = self.potential(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and add the discounted gain in potential."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        current = 0.0 if terminated else self.potential(observation)
        shaping = self.gamma * current - self._previous
        told = {"shaping_reward": shaping, "potential_prev": self._previous, "potential_curr": current}
        self._previous = current
        return observation, float(reward) + shaping, terminated, truncated, {**info, **told}


@EnvWrapperRegistry.register
class CartPoleV1_RewardShaper(PotentialShaper):
    """Potential: angle_scale * (1 - |theta|/limit) + position_scale * (1 - |x|/limit), each term cut at 0 if clipped."""

    def __init__(
        self,
        env: gym.Env,
        angle_reward_scale: float = 1.0,
        position_reward_scale: float = 0.25,
        clip_potential: bool = True,
        gamma: float | None = None,
        context: WrapperContext | None = None,
    ) -> None:
        super().__init__(env, gamma, context)
        self._angle_scale = float(angle_reward_scale)
        self._position_scale = float(position_reward_scale)
        self._clip = clip_potential
        base: Any = env.unwrapped
        if not hasattr(base, "theta_threshold_radians"):
            raise ConfigError(f"CartPoleV1_RewardShaper fits CartPole only, not {type(base).__name__}.")
        self._angle_limit = float(base.theta_threshold_radians)
        self._position_limit = float(base.x_threshold)

    def potential(self, observation: Any) -> float:
        """Upright and in the middle is best."""
        angle = 1.0 - abs(float(observation[2])) / self._angle_limit
        position = 1.0 - abs(float(observation[0])) / self._position_limit
        if self._clip:
            angle, position = max(angle, 0.0), max(position, 0.0)
        return self._angle_scale * angle + self._position_scale * position


@EnvWrapperRegistry.register
class MountainCarV0_RewardShaper(PotentialShaper):
    """Potential: scaled position (pos + 1.2)/1.7, velocity (vel + 0.07)/0.14 and height (sin(3 pos) + 1)/2."""

    def __init__(
        self,
        env: gym.Env,
        position_reward_scale: float = 100.0,
        velocity_reward_scale: float = 10.0,
        height_reward_scale: float = 50.0,
        gamma: float | None = None,
        context: WrapperContext | None = None,
    ) -> None:
        super().__init__(env, gamma, context)
        _require_mountain_car(env, type(self).__name__)
        self._scales = (float(position_reward_scale), float(velocity_reward_scale), float(height_reward_scale))

    def potential(self, observation: Any) -> float:
        """Far right, fast to the right and high is best."""
        position, velocity = float(observation[0]), float(observation[1])
        parts = ((position + 1.2) / 1.7, (velocity + 0.07) / 0.14, (math.sin(3 * position) + 1.0) / 2.0)
        return sum(scale * part for scale, part in zip(self._scales, parts, strict=True))


def _require_mountain_car(env: gym.Env, wrapper: str) -> None:
    if env.observation_space.shape != (2,):
        raise ConfigError(
            f"{wrapper} needs MountainCar's observations [position, velocity], not {env.observation_space}."
        )


BONUS = {
    "count": lambda count: 1.0 / math.sqrt(count),
    "inverse": lambda count: 1.0 / count,
    "log": lambda count: 1.0 / math.log(count + 1.0),
}
"""Bonus for a visit to a cell that was visited `count` times before."""


@EnvWrapperRegistry.register
class MountainCarV0_StateCountBonus(gym.Wrapper):
    """Adds a bonus for rarely visited cells of position x velocity.

    Counts are one table for all training environments, are kept over episodes and saved in checkpoints. There is no
    bonus outside training.
    """

    needs_shared_state: ClassVar[bool] = True
    LOW = np.array([-1.2, -0.07])
    WIDTH = np.array([1.8, 0.14])

    def __init__(
        self,
        env: gym.Env,
        position_bins: int = 50,
        velocity_bins: int = 50,
        bonus_scale: float = 1.0,
        bonus_type: str = "count",
        min_count: int = 1,
        context: WrapperContext | None = None,
    ) -> None:
        super().__init__(env)
        _require_mountain_car(env, type(self).__name__)
        if bonus_type not in BONUS:
            raise ConfigError(
                f"MountainCarV0_StateCountBonus: bonus_type is {bonus_type!r}; expected {', '.join(BONUS)}."
            )
        context = context or WrapperContext()
        self._training = context.purpose == "train"
        self._owner = context.env_index == 0
        self._bins = np.array([position_bins, velocity_bins])
        self._scale = float(bonus_scale)
        self._bonus = BONUS[bonus_type]
        self._min_count = max(1, int(min_count))
        empty = np.zeros((position_bins, velocity_bins), dtype=np.int64)
        self.counts: np.ndarray = context.shared.setdefault(type(self).__name__, empty)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, pay for novelty, count the visit."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not self._training:
            return observation, reward, terminated, truncated, info
        place = (np.asarray(observation, dtype=np.float64) - self.LOW) / self.WIDTH * self._bins
        cell = tuple(np.clip(place.astype(np.int64), 0, self._bins - 1))
        bonus = self._scale * self._bonus(max(int(self.counts[cell]), self._min_count))
        self.counts[cell] += 1
        told = {"exploration_bonus": bonus, "state_visit_count": int(self.counts[cell])}
        return observation, float(reward) + bonus, terminated, truncated, {**info, **told}

    def get_state(self) -> dict[str, Any]:
        """The table, from the first environment; the others share it."""
        return {"counts": self.counts.copy()} if self._owner else {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Put the table back, which a replay of open episodes has counted again."""
        if self._owner:
            self.counts[...] = state["counts"]
