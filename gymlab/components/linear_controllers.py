"""C of World Models (Ha & Schmidhuber 2018): one linear layer, and a whole population of them at once.

    outputs = W [z, h] + b      raw = squash(outputs)      vector = what M takes      environment's own action

The vector is what M is given and replay stores: a one-hot for choices, [-1, 1] for dimensions that are scaled to their bounds, steering, gas and
brake in CarRacing's own units, one number in [-1, 1] for Doom's left, stay and right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from gymlab.components.actors import Choices, NormalActions
from gymlab.errors import ConfigError

THIRD = 1 / 3
Kind = Literal["auto", "car_racing", "thresholds"]


class LinearControllers:
    """K linear layers as rows of weights [K, D]."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.size = (inputs + bias) * outputs
        """Length D of one controller's weights."""

    def unpack(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """[K, D] -> matrices [K, inputs, outputs] and biases [K, 1, outputs], zeros without."""
        split = self.inputs * self.outputs
        matrices = weights[:, :split].unflatten(1, (self.inputs, self.outputs))
        rest = weights[:, split:]
        return matrices, (rest if rest.shape[1] else weights.new_zeros(len(weights), self.outputs)).unsqueeze(1)

    def __call__(self, weights: Tensor, features: Tensor) -> Tensor:
        """Outputs [K, R, outputs] of controllers [K, D] that are given R rows of features each, [K, R, inputs]."""
        matrices, biases = self.unpack(weights)
        return torch.einsum("kri,kio->kro", features, matrices) + biases


class ActionMap(ABC):
    """From a controller's outputs to actions."""

    outputs: int
    """Numbers that a controller gives."""
    size: int
    """Length of an action vector."""

    @abstractmethod
    def squash(self, outputs: Tensor, mask: np.ndarray | None = None) -> Tensor:
        """Outputs [..., outputs] as raw actions of the same shape: bounded numbers, or a one-hot."""

    @abstractmethod
    def vectors(self, raw: Tensor) -> Tensor:
        """Raw actions as vectors [..., size]."""

    @abstractmethod
    def to_environment(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors as the environment takes them."""

    @abstractmethod
    def from_environment(self, actions: np.ndarray) -> np.ndarray:
        """The environment's actions as vectors."""

    @abstractmethod
    def walk(
        self, raw: np.ndarray, fresh: np.ndarray, generator: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """The next raw actions [N, outputs] of a random walk; rows that are `fresh` begin anew. Actions alike for a while show more of a world."""

    @abstractmethod
    def shown(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """For people to look at: `probabilities`, or `mean` and `std`; a controller leaves nothing to chance."""


class LargestOutput(ActionMap):
    """Discrete actions: the choice with the largest output. A random walk keeps its choice with probability `hold`."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete, hold: float) -> None:
        self.choices, self.hold = Choices(space), hold
        self.outputs = self.size = self.choices.size

    def squash(self, outputs: Tensor, mask: np.ndarray | None = None) -> Tensor:
        """One-hots; forbidden choices (False) are never taken."""
        if mask is not None:
            outputs = outputs.masked_fill(torch.from_numpy(~mask).to(outputs.device), -torch.inf)
        return self.choices.mode(outputs)

    def vectors(self, raw: Tensor) -> Tensor:
        """The one-hots themselves."""
        return raw

    def to_environment(self, vectors: np.ndarray) -> np.ndarray:
        """Numbers of the choices."""
        return self.choices.to_environment(vectors)

    def from_environment(self, actions: np.ndarray) -> np.ndarray:
        """One-hots."""
        return self.choices.from_environment(actions)

    def walk(
        self, raw: np.ndarray, fresh: np.ndarray, generator: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """The choice before, or any with even chances."""
        drawn = self.squash(torch.from_numpy(generator.random(raw.shape, dtype=np.float32)), mask).numpy()
        anew = fresh | (generator.random(len(raw)) >= self.hold)
        if mask is not None:
            anew |= (raw.astype(bool) & ~mask).any(1)
        return np.where(anew[:, None], drawn, raw)

    def shown(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """All of the probability on the choice."""
        return {"probabilities": vectors}


class Tanh(ActionMap):
    """Continuous actions: tanh of the outputs, scaled to the bounds. A random walk moves by `drift` times a normal number."""

    def __init__(self, space: spaces.Box, drift: float) -> None:
        self.scaling, self.drift = NormalActions(space), drift
        self.outputs = self.size = self.scaling.size

    def squash(self, outputs: Tensor, mask: np.ndarray | None = None) -> Tensor:
        """tanh."""
        if mask is not None:
            raise ConfigError("The environment gives an action mask, and only a choice among actions can be masked.")
        return outputs.tanh()

    def vectors(self, raw: Tensor) -> Tensor:
        """The raw actions themselves."""
        return raw

    def to_environment(self, vectors: np.ndarray) -> np.ndarray:
        """Scaled from [-1, 1] to the bounds."""
        return self.scaling.to_environment(vectors)

    def from_environment(self, actions: np.ndarray) -> np.ndarray:
        """Scaled to [-1, 1]."""
        return self.scaling.from_environment(actions)

    def walk(
        self, raw: np.ndarray, fresh: np.ndarray, generator: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Brownian motion within [-1, 1] from a place with even chances."""
        moved = np.clip(raw + self.drift * generator.standard_normal(raw.shape), -1, 1)
        begun = generator.uniform(-1, 1, raw.shape)
        return np.where(fresh[:, None], begun, moved).astype(np.float32)

    def shown(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """The action itself, without deviation."""
        action = self.to_environment(vectors).reshape(len(vectors), -1)
        return {"mean": action, "std": np.zeros_like(action)}


class CarRacingActions(Tanh):
    """CarRacing as in the paper: steering tanh, gas (tanh + 1) / 2, brake max(tanh, 0), so that the brake is off half of the time.

    A random walk is drawn back to the wheel straight, half the gas and no brake: one that stays at a bound turns in circles or stands.
    """

    MIDDLE = np.array([0.0, 0.0, -1.0], np.float32)
    PULL = 0.1

    def __init__(self, space: spaces.Box, drift: float) -> None:
        super().__init__(space, drift)
        if self.size != 3:
            raise ConfigError(f"action_map: car_racing is for steering, gas and brake; these actions are {space}.")

    def vectors(self, raw: Tensor) -> Tensor:
        """Steering, gas and brake in the environment's own units."""
        steering, gas, brake = raw.unbind(-1)
        return torch.stack([steering, (gas + 1) / 2, brake.clamp(0, 1)], -1)

    def walk(
        self, raw: np.ndarray, fresh: np.ndarray, generator: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Noisy steps, each after a tenth of the way back to the middle, where it begins."""
        pulled = raw + self.PULL * (self.MIDDLE - raw) + self.drift * generator.standard_normal(raw.shape)
        return np.where(fresh[:, None], self.MIDDLE, np.clip(pulled, -1, 1)).astype(np.float32)

    def to_environment(self, vectors: np.ndarray) -> np.ndarray:
        """As they are."""
        return vectors.astype(np.float32, copy=False)

    def from_environment(self, actions: np.ndarray) -> np.ndarray:
        """As they are."""
        return np.asarray(actions, np.float32)


class Thresholds(Tanh):
    """Doom as in the paper: tanh of one output; below -1/3, between, and above 1/3 are three actions of a choice."""

    def __init__(self, space: Space, order: tuple[int, int, int], drift: float) -> None:
        if not isinstance(space, spaces.Discrete) or not all(space.contains(number) for number in order):
            raise ConfigError(
                f"action_map: thresholds chooses among the actions {list(order)} (threshold_actions), and these actions are {space}."
            )
        super().__init__(spaces.Box(-1, 1, (1,), np.float32), drift)
        self.order = np.array(order)
        """Numbers of the actions: below, between, above."""

    def to_environment(self, vectors: np.ndarray) -> np.ndarray:
        """The number of the action whose third the value is in."""
        return self.order[1 + (vectors[..., 0] > THIRD) - (vectors[..., 0] < -THIRD)]

    def from_environment(self, actions: np.ndarray) -> np.ndarray:
        """-1, 0 or 1; an action that is not among the three is none of them, and 0."""
        actions = np.asarray(actions)
        return ((actions == self.order[2]).astype(np.float32) - (actions == self.order[0]))[:, None]

    def shown(self, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """The value that is compared with the thresholds."""
        return {"mean": vectors, "std": np.zeros_like(vectors)}


def action_map(space: Space, kind: Kind, order: tuple[int, int, int], hold: float, drift: float) -> ActionMap:
    """The map for a space: by its kind, or, `auto`, by what the space is."""
    if kind == "thresholds":
        return Thresholds(space, order, drift)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        if kind == "car_racing":
            raise ConfigError(f"action_map: car_racing is for steering, gas and brake; these actions are {space}.")
        return LargestOutput(space, hold)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return (CarRacingActions if kind == "car_racing" else Tanh)(space, drift)
    raise ConfigError(
        f"Actions of {space}: world_models controls Discrete, MultiDiscrete and floating-point Box. "
        "A wrapper (env_wrappers) can turn it into one of them."
    )
