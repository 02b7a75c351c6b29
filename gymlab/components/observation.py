"""What the network sees: one function encodes and normalises observations for training, acting and final values."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from gymlab.errors import ConfigError

Normalization = Literal["off", "rolling", "static"]

UNBOUNDED = 1e30
"""Bounds of this size stand for no bound: some environments write the largest float32 instead of infinity."""
EPSILON = 1e-8


class RunningMoments:
    """Mean and variance of a stream of rows, merged batch by batch in float64 (Chan et al. 1979)."""

    def __init__(self, mean: np.ndarray, variance: np.ndarray, count: np.ndarray) -> None:
        self.mean = mean
        self.variance = variance
        self.count = count

    def update(self, rows: np.ndarray) -> None:
        """Take in a batch [B, ...], in place."""
        size = len(rows)
        if size == 0:
            return
        batch = rows.astype(np.float64)
        batch_mean = np.add.reduce(batch, axis=0) / size
        batch -= batch_mean
        np.multiply(batch, batch, out=batch)
        total = self.count + size
        delta = batch_mean - self.mean
        squares = (
            self.variance * self.count + np.add.reduce(batch, axis=0) + delta * delta * (self.count * size / total)
        )
        self.mean += delta * (size / total)
        self.variance[...] = squares / total
        self.count[...] = total


class ObservationEncoder(nn.Module):
    """Raw observations -> network input.

    Discrete becomes a one-hot, MultiDiscrete one-hots side by side, MultiBinary floats; a Box becomes a float32 vector,
    row by row; uint8 images of rank 3 stay uint8 and channel-first, as the network scales them itself. Only
    a Box that is no image is normalised: `rolling` by running mean and variance of each dimension, clipped; `static`
    maps finite bounds to [0, 1] and leaves infinite ones alone. Statistics are buffers: they are saved with the agent,
    stay on the CPU in float64 wherever the module goes, and change only where `update=True`.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor

    def __init__(self, space: spaces.Space, normalize: Normalization = "off", clip: float = 10.0) -> None:
        super().__init__()
        if normalize not in ("off", "rolling", "static"):
            raise ConfigError(f"normalize_obs is {normalize!r}; expected off, rolling or static.")
        self.space = space
        self.clip = np.float32(clip)
        self.is_image = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3
        self.output_shape = self._output_shape(space)
        self.normalize = normalize if isinstance(space, spaces.Box) and not self.is_image else "off"
        if self.normalize == "rolling":
            self.register_buffer("mean", torch.zeros(self.output_shape, dtype=torch.float64))
            self.register_buffer("variance", torch.ones(self.output_shape, dtype=torch.float64))
            self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self._bind()

    def _output_shape(self, space: spaces.Space) -> tuple[int, ...]:
        if self.is_image:
            return space.shape or ()
        if isinstance(space, spaces.Discrete):
            return (int(space.n),)
        if isinstance(space, spaces.MultiDiscrete):
            return (int(space.nvec.sum()),)
        if isinstance(space, spaces.Box | spaces.MultiBinary):
            return (math.prod(space.shape),)
        raise ConfigError(
            f"Observations of {space} cannot be encoded; vector environments flatten Dict and Tuple first."
        )

    def _bind(self) -> None:
        # The hot path works on numpy views that share the buffers' memory.
        if self.normalize == "rolling":
            self._moments = RunningMoments(self.mean.numpy(), self.variance.numpy(), self.count.numpy())
            self._refresh()
        elif self.normalize == "static":
            assert isinstance(self.space, spaces.Box)
            low, high = (bound.ravel().astype(np.float64) for bound in (self.space.low, self.space.high))
            bounded = (np.abs(low) < UNBOUNDED) & (np.abs(high) < UNBOUNDED) & (high > low)
            self._shift = np.where(bounded, low, 0.0).astype(np.float32)
            self._scale = (1.0 / np.where(bounded, high - low, 1.0)).astype(np.float32)
        if isinstance(self.space, spaces.MultiDiscrete):
            counts = self.space.nvec.ravel()
            self._offsets = np.cumsum(counts) - counts - self.space.start.ravel()

    def _refresh(self) -> None:
        self._shift = self._moments.mean.astype(np.float32)
        self._scale = (1.0 / np.sqrt(self._moments.variance + EPSILON)).astype(np.float32)

    def encode(self, observation: np.ndarray, *, update: bool = False, valid: np.ndarray | None = None) -> np.ndarray:
        """A batch [B, ...] as the network takes it. With `update`, rolling statistics take in the `valid` rows first.

        Float32 vectors come back as they are, without a copy, when nothing is normalised.
        """
        if self.is_image:
            return observation
        if isinstance(self.space, spaces.Box):
            vectors = observation.reshape(len(observation), -1)
            if vectors.dtype != np.float32:
                vectors = vectors.astype(np.float32)
            return vectors if self.normalize == "off" else self._normalized(vectors, update, valid)
        if isinstance(self.space, spaces.MultiBinary):
            return observation.reshape(len(observation), -1).astype(np.float32)
        hot = np.zeros((len(observation), *self.output_shape), dtype=np.float32)
        rows = np.arange(len(observation))
        if isinstance(self.space, spaces.Discrete):
            hot[rows, observation - self.space.start] = 1.0
        else:
            hot[rows[:, None], observation.reshape(len(observation), -1) + self._offsets] = 1.0
        return hot

    def _normalized(self, vectors: np.ndarray, update: bool, valid: np.ndarray | None) -> np.ndarray:
        if update and self.normalize == "rolling":
            self._moments.update(vectors if valid is None else vectors[valid])
            self._refresh()
        out = np.subtract(vectors, self._shift)
        np.multiply(out, self._scale, out=out)
        if self.normalize == "rolling":
            np.minimum(out, self.clip, out=out)
            np.maximum(out, -self.clip, out=out)
        return out

    def _apply(self, fn: Any, recurse: bool = True) -> ObservationEncoder:
        # Statistics belong to the side that talks to environments: a move to a device or a lower precision passes by.
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._bind()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._bind()


class RewardNormalizer:
    """Divides rewards by the standard deviation of the running discounted return; the mean is not subtracted.

    The accumulator of an environment is zeroed at every end of an episode, whatever ended it; dead rows count nothing.
    """

    def __init__(self, gamma: float, num_envs: int, clip: float = 10.0) -> None:
        self.gamma = gamma
        self.clip = clip
        self._returns = np.zeros(num_envs, dtype=np.float64)
        self._moments = RunningMoments(np.zeros(()), np.ones(()), np.zeros(()))

    def __call__(
        self, reward: np.ndarray, ended: np.ndarray, valid: np.ndarray | None = None, *, update: bool = True
    ) -> np.ndarray:
        """[N] rewards -> [N] float32; `ended` marks the last transition of an episode."""
        if update:
            accumulated = self._returns * self.gamma + reward
            self._moments.update(accumulated if valid is None else accumulated[valid])
            self._returns = np.where(ended, 0.0, accumulated if valid is None else np.where(valid, accumulated, 0.0))
        scale = 1.0 / math.sqrt(float(self._moments.variance) + EPSILON)
        return np.clip(reward * scale, -self.clip, self.clip).astype(np.float32)

    def get_state(self) -> dict[str, Any]:
        """Accumulators and moments."""
        return {
            "returns": self._returns.copy(),
            "mean": float(self._moments.mean),
            "variance": float(self._moments.variance),
            "count": float(self._moments.count),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._returns = np.array(state["returns"], dtype=np.float64)
        self._moments = RunningMoments(
            *(np.array(state[key], dtype=np.float64) for key in ("mean", "variance", "count"))
        )
