"""Images: rendering as observation, gray, size, channels first, stacks of frames. Pure numpy, no OpenCV.

Layout: what leaves `ImageObservation` is uint8 [channels, height, width]; `FrameStack` of k frames gives [k * channels,
height, width], the oldest frame first.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.contract import ObservationCheck
from gymlab.envs.step import FRESH_START
from gymlab.envs.wrappers.registry import EnvWrapperRegistry
from gymlab.errors import ConfigError, EnvironmentFailure

LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""Weights of red, green and blue in gray (ITU-R BT.601)."""


@EnvWrapperRegistry.register
class PixelObservationWrapper(gym.Wrapper):
    """The rendered picture as observation; with `pixels_only: false` beside the state, as {pixels, state}."""

    def __init__(self, env: gym.Env, pixels_only: bool = True, render_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise EnvironmentFailure(
                f"PixelObservationWrapper needs render_mode rgb_array; the environment has {env.render_mode!r}."
            )
        self._pixels_only = pixels_only
        self._render_kwargs = dict(render_kwargs or {})
        env.reset(seed=0)
        picture = gym.spaces.Box(0, 255, self._picture().shape, np.uint8)
        self.observation_space = (
            picture if pixels_only else gym.spaces.Dict({"pixels": picture, "state": env.observation_space})
        )

    def _picture(self) -> np.ndarray:
        render: Any = self.env.render
        return np.asarray(render(**self._render_kwargs), dtype=np.uint8)

    def _observation(self, state: Any) -> Any:
        return self._picture() if self._pixels_only else {"pixels": self._picture(), "state": state}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and look at it."""
        state, info = self.env.reset(seed=seed, options=options)
        return self._observation(state), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and look."""
        state, reward, terminated, truncated, info = self.env.step(action)
        return self._observation(state), reward, terminated, truncated, info


@EnvWrapperRegistry.register
class CropObservationWrapper(gym.ObservationWrapper):
    """A part of the picture: rows from `top` to before `bottom`, columns from `left` to before `right`; none is the edge."""

    def __init__(
        self, env: gym.Env, top: int = 0, bottom: int | None = None, left: int = 0, right: int | None = None
    ) -> None:
        super().__init__(env)
        space = env.observation_space
        if not is_channel_last(space):
            raise ConfigError(
                f"CropObservationWrapper needs pictures (uint8, height x width x channels); these are {space}."
            )
        assert isinstance(space, gym.spaces.Box)
        self._rows, self._columns = slice(top, bottom), slice(left, right)
        self.observation_space = gym.spaces.Box(
            self.observation(space.low), self.observation(space.high), dtype=np.uint8
        )
        if 0 in (self.observation_space.shape or ()):
            raise ConfigError(
                f"CropObservationWrapper: rows {top} to {bottom} and columns {left} to {right} leave nothing of {space.shape}."
            )

    def observation(self, observation: Any) -> np.ndarray:
        """The part of one picture."""
        return np.asarray(observation)[self._rows, self._columns]


class AreaResize:
    """Resizes a plane so that each new pixel is the mean of the area it covers.

    Rows have few old pixels under each new one, so they are summed entry by entry; what is left is small enough for a
    plain matrix product over the columns.
    """

    def __init__(self, height: int, width: int, new_height: int, new_width: int) -> None:
        self._rows, weights = _coverage(height, new_height)
        self._row_weights = weights[:, :, None]
        indices, column_weights = _coverage(width, new_width)
        self._columns = np.zeros((width, new_width), dtype=np.float32)
        for index, weight in zip(indices, column_weights, strict=True):
            np.add.at(self._columns, (index, np.arange(new_width)), weight)
        self._sum = np.empty((new_height, width), dtype=np.float32)
        self._term = np.empty((new_height, width), dtype=np.float32)

    def __call__(self, plane: np.ndarray) -> np.ndarray:
        """[H, W] float32 -> [new H, new W] float32, not rounded."""
        total, term = self._sum, self._term
        total.fill(0.0)
        for index, weight in zip(self._rows, self._row_weights, strict=True):
            np.take(plane, index, axis=0, out=term, mode="clip")
            np.multiply(term, weight, out=term)
            np.add(total, term, out=total)
        return total @ self._columns


def _coverage(old: int, new: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices [K, new] and weights [K, new] of the old pixels under each new one."""
    edges = np.arange(new + 1) * (old / new)
    first = np.floor(edges[:-1] + 1e-9).astype(np.int64)
    depth = int((np.ceil(edges[1:] - 1e-9).astype(np.int64) - first).max())
    indices = first[None] + np.arange(depth)[:, None]
    overlap = np.minimum(edges[1:], indices + 1) - np.maximum(edges[:-1], indices)
    weights = np.clip(overlap, 0.0, None) / (old / new)
    return np.minimum(indices, old - 1), weights.astype(np.float32)


class ImageObservation(gym.ObservationWrapper):
    """uint8 images [H, W, C] or [H, W] -> [C, H', W'] uint8: gray by luma, resized by area, channels first."""

    def __init__(self, env: gym.Env, grayscale: bool = False, size: tuple[int, int] | None = None) -> None:
        super().__init__(env)
        space = env.observation_space
        if not is_channel_last(space):
            raise ConfigError(
                f"grayscale_obs and resize_obs need image observations (uint8, height x width x channels); "
                f"these are {space}. obs_type: rgb renders the environment."
            )
        assert space.shape is not None
        self._checked = ObservationCheck(space).taken
        height, width = space.shape[:2]
        channels = space.shape[2] if len(space.shape) == 3 else 1
        self._grayscale = grayscale and channels == 3
        new_height, new_width = size or (height, width)
        same = (height, width) == (new_height, new_width)
        self._resize = None if same else AreaResize(height, width, new_height, new_width)
        shape = (1 if self._grayscale else channels, new_height, new_width)
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        """One image as the network takes it, in memory of its own."""
        image = self._checked(observation)
        if image.ndim == 2:
            image = image[:, :, None]
        if self._resize is None and not self._grayscale:
            return image.transpose(2, 0, 1).copy()
        planes = (image @ LUMA)[None] if self._grayscale else image.transpose(2, 0, 1).astype(np.float32, order="C")
        out = np.empty(self.observation_space.shape or (), dtype=np.uint8)
        for channel, plane in enumerate(planes):
            smaller = plane if self._resize is None else self._resize(plane)
            np.add(smaller, 0.5, out=out[channel], casting="unsafe")
        return out


def is_channel_last(space: gym.Space) -> bool:
    """Whether observations are uint8 pictures with the channels last, or without a channel axis."""
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.uint8:
        return False
    shape = space.shape
    return (len(shape) == 2 and min(shape) > 4) or (len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] > 4)


class FrameStack(gym.Wrapper):
    """The newest k observations as one, oldest first. A new episode, or a fresh start within it, begins with k copies of its first observation.

    Images [C, H, W] become [k * C, H, W]; vectors [D] become [k * D].
    """

    def __init__(self, env: gym.Env, count: int) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or not space.shape:
            raise ConfigError(f"frame_stack needs Box observations; these are {space}.")
        self._width = space.shape[0]
        self._checked = ObservationCheck(space).taken
        repeats = (count, *[1] * (len(space.shape) - 1))
        self.observation_space = gym.spaces.Box(
            np.tile(space.low, repeats), np.tile(space.high, repeats), dtype=np.dtype(space.dtype).type
        )
        self._count = count
        self._frames = np.zeros(self.observation_space.shape, dtype=space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Fill the stack with the first frame: nothing of the last episode is left."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._fill(observation)
        return self._frames.copy(), info

    def _fill(self, observation: Any) -> None:
        self._frames = np.concatenate([self._checked(observation)] * self._count)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Drop the oldest frame and append the newest, in a new array that the caller may keep."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if info.get(FRESH_START):
            self._fill(observation)
        else:
            self._frames = np.concatenate((self._frames[self._width :], self._checked(observation)))
        return self._frames.copy(), reward, terminated, truncated, info
