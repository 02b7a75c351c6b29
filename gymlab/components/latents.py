"""Stochastic latents of world models: what the numbers of a network mean, how they are sampled and compared.

A latent reads parameters [..., P] and gives samples [..., S] that further networks take. Noise is drawn apart, ahead for
a whole sequence, from torch's generator or from one that the caller names.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


class StraightThrough(torch.autograd.Function):
    """The sample forwards, the gradient of the probabilities backwards: sample + p - stop_gradient(p)."""

    @staticmethod
    def forward(ctx: Any, probabilities: Tensor, sample: Tensor) -> Tensor:
        """The sample as it is."""
        return sample.view_as(sample)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """To the probabilities, as if they had been passed on."""
        return gradients[0], None


class Latent(ABC):
    """A family of distributions."""

    size: int
    """Length S of a sample."""
    parameter_size: int
    """Length P of the parameters."""
    noise_shape: tuple[int, ...]

    def noise(self, *shape: int, device: torch.device | None = None) -> Tensor:
        """Random numbers for samples of this shape, from torch's generator."""
        return self._draw(torch.empty(*shape, *self.noise_shape, device=device))

    @abstractmethod
    def _draw(self, empty: Tensor) -> Tensor: ...

    @abstractmethod
    def noise_from(self, generator: np.random.Generator, *shape: int) -> Tensor:
        """The same from a NumPy generator: acting has a stream of its own."""

    @abstractmethod
    def sample(self, parameters: Tensor, noise: Tensor | None) -> Tensor:
        """[..., S] random, differentiable; the mode without noise."""

    @abstractmethod
    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        """KL(p || q) of two sets of parameters, [...], summed over the latent's parts."""

    @abstractmethod
    def entropy(self, parameters: Tensor) -> Tensor:
        """[...], summed over the latent's parts."""

    @abstractmethod
    def pack(self, sample: Tensor) -> Tensor:
        """Samples in few bytes, to be stored."""

    @abstractmethod
    def unpack(self, packed: Tensor) -> Tensor:
        """The samples that were packed."""


class CategoricalLatent(Latent):
    """`groups` choices of one in `classes`, as one-hots (Dreamer v2).

    `unimix` of the probability is spread evenly (v3), so that no class is ever ruled out: logarithms and KL stay finite.
    In memory the classes of a group stand apart, [..., classes, groups]: a softmax over a few neighbouring numbers takes
    twenty times as long as one over rows.
    """

    def __init__(self, groups: int, classes: int, unimix: float = 0.0) -> None:
        self.groups = groups
        self.classes = classes
        self.unimix = unimix
        self.size = self.parameter_size = groups * classes
        self.noise_shape = (1, groups)

    def probabilities(self, parameters: Tensor) -> Tensor:
        """[..., classes, groups], the even share mixed in."""
        p = parameters.unflatten(-1, (self.classes, self.groups)).softmax(-2)
        return torch.add(self.unimix / self.classes, p, alpha=1 - self.unimix) if self.unimix else p

    def log_probabilities(self, parameters: Tensor) -> Tensor:
        """[..., classes, groups]."""
        if self.unimix:
            return self.probabilities(parameters).log()
        return functional.log_softmax(parameters.unflatten(-1, (self.classes, self.groups)), -2)

    def _draw(self, empty: Tensor) -> Tensor:
        return empty.uniform_()

    def noise_from(self, generator: np.random.Generator, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1)."""
        return torch.from_numpy(generator.random((*shape, *self.noise_shape), dtype=np.float32))

    def sample(self, parameters: Tensor, noise: Tensor | None) -> Tensor:
        """One-hots; gradients go straight through to the probabilities."""
        p = self.probabilities(parameters)
        with torch.no_grad():
            if noise is None:
                one_hot = torch.zeros_like(p).scatter_(-2, p.argmax(-2, keepdim=True), 1.0)
            else:
                # The class in whose share of [0, 1) the number falls; the last one has all that rounding leaves over.
                passed = p.new_empty(*p.shape[:-2], self.classes + 1, self.groups)
                passed[..., 0, :], passed[..., -1, :] = 1, 0
                torch.ge(noise, p[..., :-1, :].cumsum(-2), out=passed[..., 1:-1, :])
                one_hot = passed[..., :-1, :] - passed[..., 1:, :]
        if p.requires_grad:
            one_hot = StraightThrough.apply(p, one_hot)
        return one_hot.flatten(-2)

    def straight_through(self, softmax: Tensor, gradient: Tensor) -> Tensor:
        """From the gradient of a sample [..., S] to that of parameters [..., P] whose softmax is [..., classes, groups]."""
        gradient = gradient.unflatten(-1, (self.classes, self.groups)) * (1 - self.unimix)
        return torch._softmax_backward_data(gradient, softmax, -2, softmax.dtype).flatten(-2)

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        """Sum over groups and classes of p (log p - log q)."""
        log_p, log_q = self.log_probabilities(p), self.log_probabilities(q)
        return (log_p.exp() * (log_p - log_q)).sum((-2, -1))

    def entropy(self, parameters: Tensor) -> Tensor:
        """-sum p log p over groups and classes."""
        log_p = self.log_probabilities(parameters)
        return -(log_p.exp() * log_p).sum((-2, -1))

    def pack(self, sample: Tensor) -> Tensor:
        """Samples as the numbers of their classes, [..., groups] uint8, to be stored."""
        one_hot = sample.unflatten(-1, (self.classes, self.groups)).to(torch.uint8)
        numbers = torch.arange(self.classes, dtype=torch.uint8, device=sample.device).unsqueeze(-1)
        return (one_hot * numbers).sum(-2, dtype=torch.uint8)

    def unpack(self, packed: Tensor) -> Tensor:
        """The samples that were packed."""
        one_hot = torch.zeros(*packed.shape[:-1], self.classes, self.groups, device=packed.device)
        return one_hot.scatter_(-2, packed.long().unsqueeze(-2), 1.0).flatten(-2)


class GaussianLatent(Latent):
    """A diagonal Gaussian of `size` dimensions (Dreamer v1): std = softplus(x) + least."""

    def __init__(self, size: int, least_std: float = 0.1) -> None:
        self.size = size
        self.parameter_size = 2 * size
        self.noise_shape = (size,)
        self.least_std = least_std

    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation."""
        mean, raw = parameters.chunk(2, -1)
        return mean, functional.softplus(raw) + self.least_std

    def _draw(self, empty: Tensor) -> Tensor:
        return empty.normal_()

    def noise_from(self, generator: np.random.Generator, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.from_numpy(generator.standard_normal((*shape, *self.noise_shape), dtype=np.float32))

    def sample(self, parameters: Tensor, noise: Tensor | None) -> Tensor:
        """mean + std * noise."""
        mean, std = self.moments(parameters)
        return mean if noise is None else mean + std * noise

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        """log(sq / sp) + (sp^2 + (mp - mq)^2) / (2 sq^2) - 1/2, summed over dimensions."""
        (mean_p, std_p), (mean_q, std_q) = self.moments(p), self.moments(q)
        distance = (std_p.square() + (mean_p - mean_q).square()) / (2 * std_q.square())
        return (std_q.log() - std_p.log() + distance - 0.5).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Sum over dimensions of log std + 1/2 log(2 pi e)."""
        _, std = self.moments(parameters)
        return (std.log() + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def pack(self, sample: Tensor) -> Tensor:
        """Samples in half the bits, to be stored."""
        return sample.half()

    def unpack(self, packed: Tensor) -> Tensor:
        """The samples that were packed."""
        return packed.float()
