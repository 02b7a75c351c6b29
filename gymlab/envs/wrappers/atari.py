"""Atari: what the agent is shown of reward and lives, and features of the objects on the screen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from gymlab.envs.step import LIFE_LOST
from gymlab.envs.wrappers.registry import EnvWrapperRegistry
from gymlab.errors import ConfigError

SCREEN_WIDTH = 160.0


class ClipReward(gym.RewardWrapper):
    """Rewards cut to [-1, 1]."""

    def reward(self, reward: Any) -> float:
        """The reward that the agent is shown."""
        return max(-1.0, min(1.0, float(reward)))


class LifeLoss(gym.Wrapper):
    """Says in the info when a life was lost and the game goes on: a termination to the agent, but no end of the episode."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._lives = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with all lives."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives = info["lives"]
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and compare the lives; an ending is one anyway."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lost = 0 < info["lives"] < self._lives and not (terminated or truncated)
        self._lives = info["lives"]
        return observation, reward, terminated, truncated, {**info, LIFE_LOST: True} if lost else info


@EnvWrapperRegistry.register
class ALEActionMaskingWrapper(gym.Wrapper):
    """Tells in `info["action_mask"]` which of the actions do something in this game: for the full set of 18."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        if not hasattr(game, "minimal_actions"):
            raise ConfigError(f"ALEActionMaskingWrapper fits Atari games only, not {type(game).__name__}.")
        self._mask = np.array([number in game.minimal_actions for number in game.action_numbers], dtype=np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the mask is always the same."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "action_mask": self._mask}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; the mask is always the same."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, "action_mask": self._mask}


class Axis:
    """Maps the middle of an object from where it can be, plus a margin, to [-1, 1]."""

    def __init__(self, low: float, high: float, margin: float, clip: bool) -> None:
        self._low, self._high, self._margin, self._clip = low, high, margin, clip

    def bounds(self, size: float) -> tuple[float, float]:
        """Where the middle of an object of this size can be."""
        return self._low + size / 2 - self._margin, self._high - size / 2 + self._margin

    def __call__(self, start: float, size: float) -> float:
        """Normalised position of an object from its first pixel and its size."""
        low, high = self.bounds(size)
        position = 2.0 * (start + size / 2 - low) / (high - low) - 1.0
        return max(-1.0, min(1.0, position)) if self._clip else position

    def speed(self, pixels: float, size: float) -> float:
        """Normalised speed from pixels a step."""
        low, high = self.bounds(size)
        return 2.0 * pixels / (high - low)


class BallTracker:
    """Position and speed of the ball; while it is not seen, the last ones."""

    def __init__(self, x_axis: Axis, y_axis: Axis) -> None:
        self._axes = (x_axis, y_axis)
        self._seen = False
        self.state = (0.0, 0.0, 0.0, 0.0)
        """x, y, dx, dy, normalised."""

    def forget(self) -> None:
        """Begin an episode in which no ball was seen yet."""
        self._seen = False
        self.state = (0.0, 0.0, 0.0, 0.0)

    def follow(self, ball: Any) -> list[float]:
        """[x, y, dx, dy, visible]; `visible` is 1 or -1."""
        if ball is None:
            self._seen = False
            return [*self.state, -1.0]
        x_axis, y_axis = self._axes
        x, y = x_axis(ball.x, ball.w), y_axis(ball.y, ball.h)
        if self._seen:
            dx, dy = x - self.state[0], y - self.state[1]
        else:
            dx, dy = x_axis.speed(ball.dx, ball.w), y_axis.speed(ball.dy, ball.h)
        self._seen = True
        self.state = (x, y, dx, dy)
        return [*self.state, 1.0]


class ObjectWrapper(gym.Wrapper):
    """Base of wrappers that look at the objects on the screen."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        if not hasattr(env.unwrapped, "objects"):
            raise ConfigError(f"{type(self).__name__} needs the objects on the screen: set obs_type: objects.")

    def find(self, category: str) -> Any:
        """The object of a category, or None when it is not on the screen."""
        game: Any = self.env.unwrapped
        for found in game.objects:
            if found and found.category == category and getattr(found, "visible", True):
                return found
        return None


@EnvWrapperRegistry.register
class PongV5_FeatureExtractor(ObjectWrapper):
    """[Player.y, Player.dy, Enemy.y, Enemy.dy, Ball.x, Ball.y, Ball.dx, Ball.dy, Ball.visible] + one-hot of the last action.

    `action_ids` are the actions that have a place in the one-hot; none: all of them. The agent's paddle is the right one.
    """

    PADDLE_SPEED: ClassVar[float] = 24.0

    def __init__(
        self,
        env: gym.Env,
        clip: bool = True,
        playfield_y_min: float = 34,
        playfield_y_max: float = 194,
        margin_y: float = 2.0,
        action_ids: Sequence[int] | None = None,
    ) -> None:
        super().__init__(env)
        assert isinstance(env.action_space, gym.spaces.Discrete)
        ids = list(range(int(env.action_space.n)) if action_ids is None else action_ids)
        wrong = [action for action in ids if not env.action_space.contains(action)]
        if wrong:
            raise ConfigError(f"PongV5_FeatureExtractor: action_ids {ids} are not actions of {env.action_space}.")
        self._y_axis = Axis(playfield_y_min, playfield_y_max, margin_y, clip)
        self._ball = BallTracker(Axis(0.0, SCREEN_WIDTH, 0.0, clip), self._y_axis)
        self._place = {action: 9 + position for position, action in enumerate(ids)}
        bound = np.full(9 + len(ids), np.inf, dtype=np.float32)
        bound[[1, 3, 8]] = 1.0
        if clip:
            bound[[0, 2, 4, 5]] = 1.0
        low = -bound
        low[9:], bound[9:] = 0.0, 1.0
        self.observation_space = gym.spaces.Box(low, bound, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with no ball and no action."""
        _, info = self.env.reset(seed=seed, options=options)
        self._ball.forget()
        return self._features(None), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and look at the objects."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._features(int(action)), reward, terminated, truncated, info

    def _features(self, action: int | None) -> np.ndarray:
        features = np.zeros(self.observation_space.shape or (), dtype=np.float32)
        features[:2] = self._paddle("Player")
        features[2:4] = self._paddle("Enemy")
        features[4:9] = self._ball.follow(self.find("Ball"))
        if action in self._place:
            features[self._place[action]] = 1.0
        return features

    def _paddle(self, category: str) -> tuple[float, float]:
        paddle = self.find(category)
        if paddle is None:
            return 0.0, 0.0
        return self._y_axis(paddle.y, paddle.h), math.tanh(paddle.dy / self.PADDLE_SPEED)


@EnvWrapperRegistry.register
class BreakoutV5_FeatureExtractor(ObjectWrapper):
    """[paddle x, paddle dx, ball x, y, dx, dy, visible, (ball - paddle)/2 in x and in y, 2 * blocks/108 - 1]."""

    PADDLE_SPEED: ClassVar[float] = 6.0
    BLOCKS: ClassVar[float] = 108.0

    def __init__(
        self,
        env: gym.Env,
        clip: bool = True,
        playfield_x_min: float = 8,
        playfield_x_max: float = 152,
        playfield_y_min: float = 32,
        playfield_y_max: float = 196,
    ) -> None:
        super().__init__(env)
        self._x_axis = Axis(playfield_x_min, playfield_x_max, 0.0, clip)
        self._y_axis = Axis(playfield_y_min, playfield_y_max, 0.0, clip)
        self._ball = BallTracker(self._x_axis, self._y_axis)
        bound = np.ones(10, dtype=np.float32)
        bound[[4, 5]] = np.inf
        if not clip:
            bound[[0, 2, 3, 7, 8]] = np.inf
        self.observation_space = gym.spaces.Box(-bound, bound, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with no ball."""
        _, info = self.env.reset(seed=seed, options=options)
        self._ball.forget()
        return self._features(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and look at the objects."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._features(), reward, terminated, truncated, info

    def _features(self) -> np.ndarray:
        paddle = self.find("Player")
        x = y = speed = 0.0
        if paddle is not None:
            x, y = self._x_axis(paddle.x, paddle.w), self._y_axis(paddle.y, paddle.h)
            speed = math.tanh(paddle.dx / self.PADDLE_SPEED)
        ball = self._ball.follow(self.find("Ball"))
        game: Any = self.env.unwrapped
        blocks = sum(1 for found in game.objects if found and found.category == "Block")
        difference = [(ball[0] - x) / 2, (ball[1] - y) / 2]
        return np.array([x, speed, *ball, *difference, 2.0 * blocks / self.BLOCKS - 1.0], dtype=np.float32)


@EnvWrapperRegistry.register
class PongV5_RewardShaper(ObjectWrapper):
    """Pays for hits, for staying level with the ball on the agent's half, and for every turn of the ball.

    A hit is a turn of the ball's dx on the paddle's half of the screen, within 16 pixels of the paddle in y; the enemy's
    counts half. Told in `info["shaping_reward"]`.
    """

    MIDDLE: ClassVar[float] = SCREEN_WIDTH / 2
    REACH: ClassVar[float] = 16.0
    HEIGHT: ClassVar[float] = 100.0

    def __init__(
        self,
        env: gym.Env,
        paddle_hit_reward: float = 1.0,
        proximity_reward_scale: float = 0.1,
        direction_change_reward: float = 0.5,
    ) -> None:
        super().__init__(env)
        self._hit = float(paddle_hit_reward)
        self._proximity = float(proximity_reward_scale)
        self._direction = float(direction_change_reward)
        self._last_dx = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with a ball that does not move yet."""
        self._last_dx = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and add what the ball's flight is worth."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        bonus = self._bonus()
        return observation, float(reward) + bonus, terminated, truncated, {**info, "shaping_reward": bonus}

    def _bonus(self) -> float:
        ball, player, enemy = self.find("Ball"), self.find("Player"), self.find("Enemy")
        if ball is None:
            # The next ball is served from the middle: that it flies the other way is nobody's hit.
            self._last_dx = 0.0
            return 0.0
        bonus, mine = 0.0, ball.x > self.MIDDLE
        if ball.dx * self._last_dx < 0:
            bonus += self._direction
            paddle, worth = (player, self._hit) if mine else (enemy, self._hit / 2)
            if paddle is not None and abs(ball.y - paddle.y) <= self.REACH:
                bonus += worth
        if mine and player is not None:
            bonus += self._proximity * max(0.0, (self.HEIGHT - abs(ball.y - player.y)) / self.HEIGHT)
        if ball.dx:
            self._last_dx = ball.dx
        return bonus
