"""Discrete observations as numbers a network can use."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.wrappers.registry import EnvWrapperRegistry
from gymlab.errors import ConfigError


@EnvWrapperRegistry.register
class DiscreteEncoder(gym.ObservationWrapper):
    """A Discrete observation as `array` ([value]), `binary` (bits, least significant first) or `onehot`, in float32."""

    def __init__(self, env: gym.Env, encoding: str = "binary") -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Discrete):
            raise ConfigError(f"DiscreteEncoder needs Discrete observations; these are {space}.")
        if encoding not in ("array", "binary", "onehot"):
            raise ConfigError(f"DiscreteEncoder: encoding is {encoding!r}; expected array, binary or onehot.")
        self._encoding = encoding
        self._start, self._count = int(space.start), int(space.n)
        self._bits = np.arange(max(1, (self._count - 1).bit_length()))
        size = {"array": 1, "binary": len(self._bits), "onehot": self._count}[encoding]
        high = float(self._count - 1) if encoding == "array" else 1.0
        self.observation_space = gym.spaces.Box(0.0, high, (size,), np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """The encoded value, counted from the space's start."""
        value = int(observation) - self._start
        if self._encoding == "array":
            return np.array([value], dtype=np.float32)
        if self._encoding == "binary":
            return ((value >> self._bits) & 1).astype(np.float32)
        encoded = np.zeros(self._count, dtype=np.float32)
        encoded[value] = 1.0
        return encoded
