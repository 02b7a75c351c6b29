"""Wrappers of actions: repeating, renaming, rewarding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.wrappers.registry import EnvWrapperRegistry
from gymlab.errors import ConfigError

FRAME_SKIP_STREAM = 0x5C1B
"""Keeps the draws of the frame skip apart from those of the environment, which has the same seed."""
STICKY_STREAM = 0x571C
"""Keeps the draws of sticky buttons apart from both."""


@EnvWrapperRegistry.register
class FrameSkipWrapper(gym.Wrapper):
    """Repeats an action `skip` times, or a number of times drawn from [lo, hi] at each step, and sums the rewards."""

    def __init__(self, env: gym.Env, skip: int | Sequence[int] = 4) -> None:
        super().__init__(env)
        low, high = (skip, skip) if isinstance(skip, int) else skip
        if not 1 <= low <= high:
            raise ConfigError(
                f"FrameSkipWrapper: skip is {skip!r}; expected a count >= 1 or [lo, hi] with 1 <= lo <= hi."
            )
        self._low, self._high = int(low), int(high)
        self._repeat = getattr(env, "repeat", None) or self._step_by_step
        fps = env.metadata.get("render_fps")
        if fps:
            # One picture a step: a video plays as fast as the environment was meant to.
            self.metadata = {**env.metadata, "render_fps": fps / ((low + high) / 2)}
        self._generator = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the seed also starts the draws of skips."""
        if seed is not None:
            self._generator = np.random.default_rng([seed, FRAME_SKIP_STREAM])
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Repeat the action until its count is reached or the episode ends."""
        count = self._low
        if self._high > self._low:
            count = int(self._generator.integers(self._low, self._high + 1))
        return self._repeat(action, count)

    def _step_by_step(self, action: Any, count: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(count):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


@EnvWrapperRegistry.register
class DiscreteActionSpaceRemapperWrapper(gym.ActionWrapper):
    """Offers only the actions in `mapping`: action i of the agent is action mapping[i] of the environment."""

    def __init__(self, env: gym.Env, mapping: Sequence[int]) -> None:
        super().__init__(env)
        space = _discrete_actions(env, type(self).__name__)
        wrong = [action for action in mapping if not space.contains(action)]
        if wrong or not mapping:
            raise ConfigError(f"{type(self).__name__}: mapping {list(mapping)!r} is not a list of actions of {space}.")
        self.mapping = tuple(int(action) for action in mapping)
        """The environment's own number of each action."""
        self.action_space = gym.spaces.Discrete(len(self.mapping))

    def action(self, action: Any) -> int:
        """The environment's name of the agent's action."""
        return self.mapping[int(action)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; an action mask is renamed like the actions."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._renamed(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step with the environment's name of the action."""
        observation, reward, terminated, truncated, info = self.env.step(self.action(action))
        return observation, reward, terminated, truncated, self._renamed(info)

    def _renamed(self, info: dict[str, Any]) -> dict[str, Any]:
        if "action_mask" not in info:
            return info
        return {**info, "action_mask": np.asarray(info["action_mask"])[list(self.mapping)]}


@EnvWrapperRegistry.register
class ActionRewardShaper(gym.Wrapper):
    """Adds rewards[action] to the reward; told in `info["action_reward_bonus"]`."""

    def __init__(self, env: gym.Env, rewards: Sequence[float]) -> None:
        super().__init__(env)
        space = _discrete_actions(env, type(self).__name__)
        if len(rewards) != int(space.n):
            raise ConfigError(f"ActionRewardShaper: {len(rewards)} rewards for {int(space.n)} actions.")
        self._start = int(space.start)
        self._rewards = tuple(float(reward) for reward in rewards)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and add the action's bonus."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        bonus = self._rewards[int(action) - self._start]
        return observation, float(reward) + bonus, terminated, truncated, {**info, "action_reward_bonus": bonus}


@EnvWrapperRegistry.register
class StickyActionsWrapper(gym.Wrapper):
    """Presses buttons of a MultiBinary action by itself: `sticky_buttons` is {button number: probability} of each step.

    What the agent presses stays pressed. The draws follow from the episode's seed.
    """

    def __init__(self, env: gym.Env, sticky_buttons: Mapping[int, float]) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, gym.spaces.MultiBinary) or len(space.shape) != 1:
            raise ConfigError(f"StickyActionsWrapper needs MultiBinary actions; these are {space}.")
        self._probability = np.zeros(space.shape)
        for button, probability in sticky_buttons.items():
            # Keys of a config that was saved as JSON are text.
            number = int(button) if str(button).isdigit() else -1
            if not 0 <= number < len(self._probability):
                raise ConfigError(
                    f"StickyActionsWrapper: sticky_buttons has the button {button!r}; expected a number from 0 to "
                    f"{len(self._probability) - 1}."
                )
            if not 0.0 <= float(probability) <= 1.0:
                raise ConfigError(
                    f"StickyActionsWrapper: the probability of button {button} is {probability}; expected 0 to 1."
                )
            self._probability[number] = float(probability)
        self._generator = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the seed also starts the draws."""
        if seed is not None:
            self._generator = np.random.default_rng([seed, STICKY_STREAM])
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step with the buttons that the agent or the draw presses."""
        forced = self._generator.random(self._probability.shape) < self._probability
        return self.env.step(np.where(forced, 1, action).astype(np.int8))


def _discrete_actions(env: gym.Env, wrapper: str) -> gym.spaces.Discrete:
    if not isinstance(env.action_space, gym.spaces.Discrete):
        raise ConfigError(f"{wrapper} needs Discrete actions; these are {env.action_space}.")
    return env.action_space
