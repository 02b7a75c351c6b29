"""The plainest parts that an experiment is composed of: what stands in for a learned one, or is compared with it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn


class Identity(nn.Module):
    """A representation that is the observation itself, as a vector."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, observation: Tensor) -> Tensor:
        """[..., size] as it is."""
        if observation.shape[-1] != self.size:
            raise ValueError(f"identity is for vectors of {self.size} numbers, got {tuple(observation.shape)}.")
        return observation

    def decode(self, latent: Tensor) -> Tensor:
        """The observation that a latent stands for: itself."""
        return latent


class DeterministicMLP(nn.Module):
    """Dynamics without chance: the next latent, by how far it is from the present one, and the reward on the way."""

    def __init__(self, latent: int, action: int, hidden: int = 128, layers: int = 2) -> None:
        super().__init__()
        sizes = [latent + action] + [hidden] * layers
        body = [
            module
            for inputs, outputs in itertools.pairwise(sizes)
            for module in (nn.Linear(inputs, outputs), nn.SiLU())
        ]
        self.body = nn.Sequential(*body)
        self.change = nn.Linear(sizes[-1], latent)
        self.reward = nn.Linear(sizes[-1], 1)

    def forward(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """[..., latent], [..., action] -> the next latent and the reward [...]."""
        x = self.body(torch.cat([latent, action], -1))
        return latent + self.change(x), self.reward(x).squeeze(-1)


class RandomPolicy:
    """A controller that draws every action evenly from its space."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = np.random.default_rng(seed)

    def __call__(self, space: Space, count: int) -> np.ndarray:
        """[count, ...] actions."""
        space.seed(int(self.generator.integers(2**31)))
        return np.stack([space.sample() for _ in range(count)])

    def get_state(self) -> dict[str, Any]:
        """The generator's."""
        return {"generator": self.generator.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where `get_state` was."""
        self.generator.bit_generator.state = state["generator"]
