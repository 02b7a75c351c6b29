"""Planning in a learned model: draw sequences of actions, judge them by the model, draw the next ones near the best.

    repeat:  A ~ plan              S sequences of H actions for each of E environments, and those that were proposed
             v = value(A)          what the model expects of each
             plan = weighted mean and deviation of the best; MPPI weighs by exp(temperature (v - max)), CEM evenly

The action to take is the first of one of the best sequences, drawn by its weight. The plan of the next step begins with this one, moved on by a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gymlab.errors import ConfigError

Value = Callable[[Tensor], Tensor]
"""Sequences of actions [E, S, H, A] -> what is expected of each, [E, S]."""
Kind = Literal["mppi", "cem"]


@dataclass(frozen=True, slots=True)
class Planned:
    """What was found for E environments."""

    action: Tensor
    """[E, A] to take now."""
    mean: Tensor
    """[E, H, A] of the plan: where the next one begins, a step on."""
    std: Tensor
    """[E, H, A] how far the best sequences lay from it; zeros for choices."""
    value: Tensor
    """[E] what is expected of the best sequence."""
    elites: Tensor
    """[E, N, H, A] the best sequences, the best of them first."""
    unusable: Tensor
    """Values that were not finite and counted as 0, over all rounds."""


class MPCPlanner:
    """Model-predictive control by sampling: path integrals (MPPI, as TD-MPC uses it) or the cross-entropy method (CEM).

    Actions are vectors in [-1, 1], or with `choices` one-hots of these sizes side by side: then the mean holds the probabilities
    that they are drawn with.
    """

    def __init__(
        self,
        action_size: int,
        horizon: int = 3,
        kind: Kind = "mppi",
        *,
        samples: int = 512,
        elites: int = 64,
        iterations: int = 6,
        temperature: float = 0.5,
        min_std: float = 0.05,
        max_std: float = 2.0,
        momentum: float = 0.0,
        choices: Sequence[int] = (),
    ) -> None:
        """Make a planner; it keeps nothing between plans.

        samples: sequences of a round, with those that are proposed.
        temperature: how much more the better ones weigh (MPPI).
        min_std, max_std: bounds of the deviation, which begins at the larger one; as a share of even chances where there are `choices`.
        momentum: share of the old mean in the new one.
        """
        if not 0 < elites <= samples:
            raise ConfigError(f"mpc_planner: elites must be 1 to samples ({samples}), got {elites}.")
        if not 0 <= min_std <= max_std:
            raise ConfigError(f"mpc_planner: min_std ({min_std}) must lie from 0 to max_std ({max_std}).")
        if choices and sum(choices) != action_size:
            raise ConfigError(f"mpc_planner: choices {list(choices)} are no action vector of {action_size} numbers.")
        self.action_size, self.horizon, self.kind, self.choices = action_size, horizon, kind, list(choices)
        self.samples, self.elites, self.iterations, self.temperature = samples, elites, iterations, temperature
        self.min_std, self.max_std, self.momentum = min_std, max_std, momentum

    def start(self, count: int, device: torch.device | None = None) -> Tensor:
        """[count, H, A] where a plan begins that no other went before."""
        even = torch.zeros(self.action_size, device=device)
        if self.choices:
            even = torch.cat([torch.full((size,), 1 / size, device=device) for size in self.choices])
        return even.expand(count, self.horizon, -1)

    def follow(self, mean: Tensor, begins: Tensor) -> Tensor:
        """Plans [E, H, A] a step on; from nothing where an episode begins, [E] bool."""
        fresh = self.start(len(mean), mean.device)
        moved = torch.cat([mean[:, 1:], fresh[:, -1:]], 1)
        return torch.where(begins[:, None, None], fresh, moved)

    @torch.no_grad()
    def plan(
        self,
        value: Value,
        mean: Tensor,
        generator: np.random.Generator,
        proposals: Tensor | None = None,
        *,
        explore: bool = False,
    ) -> Planned:
        """Improve `mean` [E, H, A]; `proposals` [E, P, H, A] take part in every round, `explore` adds the plan's own noise to the action."""
        count, proposed = len(mean), 0 if proposals is None else proposals.shape[1]
        if proposed >= self.samples:
            raise ConfigError(
                f"mpc_planner: samples ({self.samples}) must be more than the {proposed} proposed sequences."
            )
        shape = (count, self.samples, self.horizon, self.action_size)
        sequences = mean.new_empty(shape)
        if proposals is not None:
            sequences[:, :proposed] = proposals
        std = torch.full_like(mean, 0.0 if self.choices else self.max_std)
        unusable = torch.zeros((), dtype=torch.long, device=mean.device)
        for _ in range(self.iterations):
            sequences[:, proposed:] = self._draw(mean, std, self.samples - proposed, generator)
            values = value(sequences)
            usable = values.isfinite()
            unusable += (~usable).sum()
            best, places = values.where(usable, values.new_zeros(())).topk(self.elites, 1)
            elites = sequences.gather(1, places[:, :, None, None].expand(-1, -1, *shape[2:]))
            weights = self.weights(best)
            mean, std = self._fit(elites, weights[:, :, None, None], mean)
        chosen = _drawn(weights, generator)
        action = elites[torch.arange(count, device=mean.device), chosen, 0]
        if explore:
            action = self._explored(action, mean[:, 0], std[:, 0], generator)
        return Planned(action, mean, std, best[:, 0], elites, unusable)

    def weights(self, values: Tensor) -> Tensor:
        """[E, N] of the best -> their weights, which add up to 1."""
        if self.kind == "cem":
            return torch.full_like(values, 1 / values.shape[1])
        return torch.softmax(self.temperature * values, 1)

    def _draw(self, mean: Tensor, std: Tensor, samples: int, generator: np.random.Generator) -> Tensor:
        """[E, samples, H, A]."""
        count = len(mean)
        if self.choices:
            race = _numbers(generator.standard_exponential, (count, samples, *mean.shape[1:]), mean)
            return self._one_hot(mean.unsqueeze(1) / race)
        noise = _numbers(generator.standard_normal, (count, samples, *mean.shape[1:]), mean)
        return torch.addcmul(mean.unsqueeze(1), std.unsqueeze(1), noise).clamp_(-1, 1)

    def _fit(self, elites: Tensor, weights: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the best."""
        found = (weights * elites).sum(1)
        mean = torch.lerp(found, old, self.momentum)
        if self.choices:
            # No choice is ever ruled out.
            return torch.lerp(mean, self.start(len(mean), mean.device), self.min_std), torch.zeros_like(mean)
        variance = (weights * (elites - found.unsqueeze(1)).square()).sum(1)
        return mean, variance.sqrt().clamp_(self.min_std, self.max_std)

    def _explored(self, action: Tensor, mean: Tensor, std: Tensor, generator: np.random.Generator) -> Tensor:
        if self.choices:
            return self._one_hot(mean / _numbers(generator.standard_exponential, mean.shape, mean))
        return torch.addcmul(action, std, _numbers(generator.standard_normal, mean.shape, mean)).clamp_(-1, 1)

    def _one_hot(self, scores: Tensor) -> Tensor:
        """The largest of each choice."""
        parts = scores.split(self.choices, -1)
        hot = [torch.zeros_like(part).scatter_(-1, part.argmax(-1, keepdim=True), 1.0) for part in parts]
        return hot[0] if len(hot) == 1 else torch.cat(hot, -1)


def _numbers(draw: Callable[..., np.ndarray], shape: tuple[int, ...], like: Tensor) -> Tensor:
    return torch.from_numpy(draw(shape, dtype=np.float32)).to(like)


def _drawn(weights: Tensor, generator: np.random.Generator) -> Tensor:
    """[E, N] -> [E] numbers, each drawn by its weight."""
    race = _numbers(generator.standard_exponential, tuple(weights.shape), weights)
    return (weights / race).argmax(1)
