"""What a policy's numbers mean, for agents that learn inside a model: actions are float vectors, sampled differentiably.

The vector is what a world model takes and what replay stores: one-hots for choices, [-1, 1] for continuous dimensions. The
environment's own actions are made of it, and it of them, by `to_environment` and `from_environment`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.nn import functional

from gymlab.components.latents import StraightThrough
from gymlab.errors import ConfigError

MASKED_LOGIT = -1e8
NEWTON_STEPS = 20
"""Enough for seven digits, but where the Normal is just so wide that the density has two peaks."""
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
Continuous = Literal["normal", "truncated_normal", "tanh_normal", "squashed_normal", "noisy_tanh"]


class ActionDistribution(ABC):
    """Parameters [..., P] -> action vectors [..., A]."""

    size: int
    """Length A of an action vector."""
    parameter_size: int
    dimensions: int
    """Choices, or continuous dimensions."""

    @abstractmethod
    def noise(self, *shape: int) -> Tensor:
        """Random numbers for actions of this shape, from torch's generator."""

    @abstractmethod
    def noise_from(self, generator: np.random.Generator, *shape: int) -> Tensor:
        """The same from a NumPy generator: acting has a stream of its own."""

    @abstractmethod
    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Random actions, differentiable."""

    @abstractmethod
    def mode(self, parameters: Tensor) -> Tensor:
        """What is most likely."""

    @abstractmethod
    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """[...], summed over dimensions."""

    @abstractmethod
    def entropy(self, parameters: Tensor) -> Tensor:
        """[...], summed over dimensions."""

    def scaled_entropy(self, parameters: Tensor) -> Tensor:
        """[...] the entropy times the number of dimensions, which TD-MPC2 rewards."""
        return self.dimensions * self.entropy(parameters)

    @abstractmethod
    def random(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """[count, A] actions drawn evenly from all there are."""

    @abstractmethod
    def explore(self, action: Tensor, amount: float, generator: np.random.Generator) -> Tensor:
        """Actions with noise of this deviation, or with this share of random ones."""

    @abstractmethod
    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Action vectors as the environment takes them."""

    @abstractmethod
    def from_environment(self, actions: np.ndarray) -> np.ndarray:
        """The environment's actions as vectors."""

    @abstractmethod
    def shown(self, parameters: Tensor) -> dict[str, np.ndarray]:
        """For people to look at: `probabilities`, or `mean` and `std`."""


class Choices(ActionDistribution):
    """One or several choices as one-hots side by side; `unimix` of the probability is spread evenly."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete, unimix: float = 0.0) -> None:
        self.space = space
        self.unimix = unimix
        if isinstance(space, spaces.Discrete):
            self.sizes, self.start = [int(space.n)], np.array([space.start])
        else:
            self.sizes, self.start = [int(n) for n in space.nvec.ravel()], space.start.ravel()
        self.size = self.parameter_size = sum(self.sizes)
        self.dimensions = len(self.sizes)

    def _log_probabilities(self, parameters: Tensor) -> list[Tensor]:
        parts = [functional.log_softmax(part, -1) for part in parameters.split(self.sizes, -1)]
        if not self.unimix:
            return parts
        return [(part.exp() * (1 - self.unimix) + self.unimix / part.shape[-1]).log() for part in parts]

    def masked(self, parameters: Tensor, action_mask: np.ndarray) -> tuple[Choices, Tensor]:
        """A distribution and its parameters, in which forbidden choices (False) have a probability of exactly 0."""
        logits = torch.cat(self._log_probabilities(parameters), -1)
        forbidden = torch.from_numpy(~action_mask).to(logits.device)
        return Choices(self.space), logits.masked_fill(forbidden, MASKED_LOGIT)

    def noise(self, *shape: int) -> Tensor:
        """Exponential numbers: the largest p / noise is a sample of p."""
        return torch.empty(*shape, self.size).exponential_()

    def noise_from(self, generator: np.random.Generator, *shape: int) -> Tensor:
        """Exponential numbers."""
        return torch.from_numpy(generator.standard_exponential((*shape, self.size), dtype=np.float32))

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """One-hots; gradients go straight through to the probabilities."""
        probabilities = [part.exp() for part in self._log_probabilities(parameters)]
        chosen = [_one_hot(p.detach() / n) for p, n in zip(probabilities, noise.split(self.sizes, -1), strict=True)]
        one_hot = torch.cat(chosen, -1)
        return StraightThrough.apply(torch.cat(probabilities, -1), one_hot) if parameters.requires_grad else one_hot

    def mode(self, parameters: Tensor) -> Tensor:
        """One-hots of the largest."""
        return torch.cat([_one_hot(part) for part in parameters.split(self.sizes, -1)], -1)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Sum of log p over the chosen ones."""
        return (torch.cat(self._log_probabilities(parameters), -1) * action).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """-sum p log p."""
        log_p = torch.cat(self._log_probabilities(parameters), -1)
        return -(log_p.exp() * log_p).sum(-1)

    def random(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Even chances."""
        scores = torch.from_numpy(generator.random((count, self.size), dtype=np.float32))
        return self.mode(scores).numpy()

    def explore(self, action: Tensor, amount: float, generator: np.random.Generator) -> Tensor:
        """A share of them at random."""
        if not amount:
            return action
        random = torch.from_numpy(self.random(generator, len(action))).to(action.device)
        swap = torch.from_numpy(generator.random(len(action)) < amount).to(action.device)
        return torch.where(swap.unsqueeze(-1), random, action)

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Numbers of the choices, counted from the space's own start."""
        ends = np.cumsum(self.sizes)[:-1]
        numbers = np.stack([part.argmax(-1) for part in np.split(actions, ends, -1)], -1) + self.start
        if isinstance(self.space, spaces.Discrete):
            return numbers[..., 0]
        return numbers.reshape(*actions.shape[:-1], *self.space.shape).astype(self.space.dtype, copy=False)

    def from_environment(self, actions: np.ndarray) -> np.ndarray:
        """One-hots."""
        numbers = np.asarray(actions).reshape(len(actions), -1) - self.start
        rows = [np.eye(size, dtype=np.float32)[numbers[:, k]] for k, size in enumerate(self.sizes)]
        return np.concatenate(rows, -1)

    def shown(self, parameters: Tensor) -> dict[str, np.ndarray]:
        """Probabilities of each choice."""
        return {"probabilities": torch.cat(self._log_probabilities(parameters), -1).exp().numpy()}


class Bounded(ActionDistribution):
    """Continuous dimensions in [-1, 1]; parameters are [raw means, raw deviations]."""

    def __init__(self, space: spaces.Box) -> None:
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ConfigError(
                f"Actions of {space} have no bounds to scale to. Set them with a wrapper (env_wrappers), or use ppo."
            )
        self.space = space
        self.size = self.dimensions = int(np.prod(space.shape))
        self.parameter_size = 2 * self.size

    @abstractmethod
    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the underlying normal."""

    def noise(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(*shape, self.size)

    def noise_from(self, generator: np.random.Generator, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.from_numpy(generator.standard_normal((*shape, self.size), dtype=np.float32))

    def random(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Even chances in [-1, 1]."""
        return generator.uniform(-1, 1, (count, self.size)).astype(np.float32)

    def explore(self, action: Tensor, amount: float, generator: np.random.Generator) -> Tensor:
        """Normal noise on each dimension, within the bounds."""
        if not amount:
            return action
        noise = self.noise_from(generator, len(action)).to(action.device)
        return (action + amount * noise).clamp(-1, 1)

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Clipped to [-1, 1] and scaled to the bounds of the space."""
        low, high = self.space.low, self.space.high
        shaped = np.clip(actions, -1, 1).reshape(*actions.shape[:-1], *self.space.shape)
        return (low + (shaped + 1) * 0.5 * (high - low)).astype(self.space.dtype, copy=False)

    def from_environment(self, actions: np.ndarray) -> np.ndarray:
        """Scaled to [-1, 1]."""
        low, high = self.space.low, self.space.high
        scaled = 2 * (np.asarray(actions, np.float32) - low) / (high - low) - 1
        return scaled.reshape(len(actions), -1).astype(np.float32)

    def shown(self, parameters: Tensor) -> dict[str, np.ndarray]:
        """Mean and deviation in the units of the environment."""
        mean, std = self.moments(parameters)
        half = (self.space.high - self.space.low).ravel() * 0.5
        center = (self.space.high + self.space.low).ravel() * 0.5
        return {"mean": mean.numpy() * half + center, "std": std.numpy() * half}


class NormalActions(Bounded):
    """A Normal with its mean in [-1, 1] and its deviation in [0.1, 1]; the environment clips (Dreamer v3)."""

    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """tanh(m), 0.9 sigmoid(s + 2) + 0.1."""
        mean, raw = parameters.chunk(2, -1)
        return mean.tanh(), 0.9 * torch.sigmoid(raw + 2) + 0.1

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """mean + std * noise, not clipped."""
        mean, std = self.moments(parameters)
        return mean + std * noise

    def mode(self, parameters: Tensor) -> Tensor:
        """The mean."""
        return self.moments(parameters)[0]

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Density of the Normal."""
        mean, std = self.moments(parameters)
        z = (action - mean) / std
        return (-0.5 * z * z - std.log() - HALF_LOG_TWO_PI).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """1/2 + 1/2 log 2 pi + log std."""
        return (self.moments(parameters)[1].log() + (0.5 + HALF_LOG_TWO_PI)).sum(-1)


class TruncatedNormalActions(Bounded):
    """A Normal cut off at -1 and 1 (Dreamer v2)."""

    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Of the Normal before it is cut: tanh(m), 2 sigmoid(s / 2) + 0.1."""
        mean, raw = parameters.chunk(2, -1)
        return mean.tanh(), 2 * torch.sigmoid(raw / 2) + 0.1

    def _edges(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Both edges in deviations, the share of the Normal below the lower one, and the share between them."""
        low, high = (-1 - mean) / std, (1 - mean) / std
        below = _normal_cdf(low)
        return low, high, below, (_normal_cdf(high) - below).clamp(min=1e-6)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """By the inverse of the distribution function, so that gradients reach mean and deviation."""
        mean, std = self.moments(parameters)
        _, _, below, mass = self._edges(mean, std)
        share = below + _normal_cdf(noise) * mass
        z = math.sqrt(2) * torch.erfinv((2 * share - 1).clamp(-1 + 1e-6, 1 - 1e-6))
        return (mean + std * z).clamp(-1 + 1e-6, 1 - 1e-6)

    def mode(self, parameters: Tensor) -> Tensor:
        """The mean of the Normal before it is cut lies within the bounds, and is the most likely."""
        return self.moments(parameters)[0]

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Density of the Normal over the share that lies within the bounds."""
        mean, std = self.moments(parameters)
        mass = self._edges(mean, std)[3]
        z = (action - mean) / std
        return (-0.5 * z * z - std.log() - HALF_LOG_TWO_PI - mass.log()).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """log(sqrt(2 pi e) std Z) + (a phi(a) - b phi(b)) / (2 Z)."""
        mean, std = self.moments(parameters)
        low, high, _, mass = self._edges(mean, std)
        edges = (low * _normal_density(low) - high * _normal_density(high)) / (2 * mass)
        return (0.5 + HALF_LOG_TWO_PI + (std * mass).log() + edges).sum(-1)


class TanhNormalActions(Bounded):
    """tanh of a Normal (Dreamer v1): its mean within 5, its deviation 5 at the start."""

    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Of the Normal before tanh: 5 tanh(m / 5), softplus(s + c) + 1e-4, with c such that softplus(c) = 5."""
        mean, raw = parameters.chunk(2, -1)
        return 5 * torch.tanh(mean / 5), functional.softplus(raw + math.log(math.expm1(5.0))) + 1e-4

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """tanh(mean + std * noise)."""
        mean, std = self.moments(parameters)
        return torch.tanh(mean + std * noise)

    def mode(self, parameters: Tensor) -> Tensor:
        """Where the density of the action is largest: tanh(x) with x = mean + 2 std^2 tanh(x), on the side of the mean.

        The density at tanh(x) is that of the Normal divided by 1 - tanh(x)^2: a wide Normal piles up at the bounds. To the right of
        0 what is solved is convex, so Newton's method from the right of its root goes there without overshooting.
        """
        mean, std = self.moments(parameters)
        twice, distance = 2 * std.square(), mean.abs()
        x = distance + twice
        for _ in range(NEWTON_STEPS):
            squashed = x.tanh()
            slope = (1 - twice * (1 - squashed.square())).clamp(min=1e-6)
            x = x - (x - distance - twice * squashed) / slope
        return torch.where(mean < 0, -x, x).tanh()

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Density of the Normal at atanh(a), less log(1 - a^2)."""
        mean, std = self.moments(parameters)
        action = action.clamp(-1 + 1e-6, 1 - 1e-6)
        z = (torch.atanh(action) - mean) / std
        return (-0.5 * z * z - std.log() - HALF_LOG_TWO_PI - torch.log1p(-action.square())).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """There is no closed form: the Normal's own entropy and the mean of log(1 - tanh^2), by Gauss and Hermite's rule."""
        mean, std = self.moments(parameters)
        nodes, weights = (torch.from_numpy(x).to(mean) for x in np.polynomial.hermite.hermgauss(16))
        inner = mean.unsqueeze(-1) + std.unsqueeze(-1) * math.sqrt(2) * nodes
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), without overflow.
        squash = 2 * (math.log(2) - inner - functional.softplus(-2 * inner))
        return (0.5 + HALF_LOG_TWO_PI + std.log() + squash @ weights / math.sqrt(math.pi)).sum(-1)

    def shown(self, parameters: Tensor) -> dict[str, np.ndarray]:
        """The squashed mean, and the deviation by the slope of tanh there."""
        mean, std = self.moments(parameters)
        squashed = mean.tanh()
        half = (self.space.high - self.space.low).ravel() * 0.5
        center = (self.space.high + self.space.low).ravel() * 0.5
        slope = (1 - squashed.square()) * std
        return {"mean": squashed.numpy() * half + center, "std": slope.numpy() * half}


class SquashedNormalActions(TanhNormalActions):
    """tanh of a Normal whose log deviation lies in [-10, 2] (TD-MPC2)."""

    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Of the Normal before tanh: m, exp(-10 + 6 (tanh(s) + 1))."""
        mean, raw = parameters.chunk(2, -1)
        return mean, torch.exp(-10 + 6 * (torch.tanh(raw) + 1))

    def mode(self, parameters: Tensor) -> Tensor:
        """tanh(mean), which its authors evaluate with."""
        return self.moments(parameters)[0].tanh()

    def scaled_entropy(self, parameters: Tensor) -> Tensor:
        """Dimensions times the entropy of the Normal before tanh: it widens the deviation and leaves the mean alone."""
        log_std = 6 * torch.tanh(parameters.chunk(2, -1)[1]) - 4
        return self.dimensions * (log_std + (0.5 + HALF_LOG_TWO_PI)).sum(-1)


class NoisyTanhActions(Bounded):
    """tanh with a little noise of fixed size (TD-MPC); beyond a bound the gradient goes on as if there were none."""

    STD = 0.05

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        self.parameter_size = self.size

    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """tanh(m), and the noise."""
        return parameters.tanh(), torch.full_like(parameters, self.STD)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Within the bounds."""
        action = parameters.tanh() + self.STD * noise
        return action + (action.clamp(-1, 1) - action).detach()

    def mode(self, parameters: Tensor) -> Tensor:
        """Without noise."""
        return parameters.tanh()

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Density of the noise, its cut at the bounds left out."""
        z = (action - parameters.tanh()) / self.STD
        return (-0.5 * z * z - math.log(self.STD) - HALF_LOG_TWO_PI).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Of the noise: always the same."""
        one = 0.5 + HALF_LOG_TWO_PI + math.log(self.STD)
        return torch.full(parameters.shape[:-1], self.size * one, device=parameters.device)


CONTINUOUS: dict[str, type[Bounded]] = {
    "noisy_tanh": NoisyTanhActions,
    "squashed_normal": SquashedNormalActions,
    "normal": NormalActions,
    "truncated_normal": TruncatedNormalActions,
    "tanh_normal": TanhNormalActions,
}


def action_distribution(space: Space, continuous: Continuous, unimix: float) -> ActionDistribution:
    """The distribution of actions in a space."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return Choices(space, unimix)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return CONTINUOUS[continuous](space)
    raise ConfigError(
        f"Actions of {space}: Discrete, MultiDiscrete and floating-point Box can be dreamt of. "
        "A wrapper (env_wrappers) can turn it into one of them."
    )


def _one_hot(scores: Tensor) -> Tensor:
    return torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)


def _normal_cdf(x: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def _normal_density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x - HALF_LOG_TWO_PI)
