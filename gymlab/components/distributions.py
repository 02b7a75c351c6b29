"""Action distributions: sampling in numpy, densities in numpy or torch by one formula, gradients written out.

A distribution reads an array of parameters [..., P] (logits; mean and log-std) and knows nothing of the network that
made it. Every log-prob and entropy comes back as [...], summed over action dimensions. torch.distributions is avoided on
purpose: for a batch of eight it costs three times the network itself.

Action masks push the logits of forbidden actions to -1e8: their probability is exactly 0, and so is every gradient
through them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from gymlab.errors import ConfigError

Array = Any
"""A numpy array or a torch tensor: formulas below hold for both."""
Pullback = Callable[[np.ndarray, float], np.ndarray]
"""(dL/dlog_prob [B], dL/dentropy, the same for each row) -> dL/dparameters [B, P]."""

MASKED_LOGIT = -1e8
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Distribution(ABC):
    """How parameters become actions. `head_size` of the P parameters come from the network, `free_size` are its own."""

    head_size: int
    free_size: int = 0
    """Parameters that do not depend on the observation (the log-std of a Gaussian); last in the parameters array."""
    action_shape: tuple[int, ...]
    """Shape of one stored action."""
    action_dtype: type[np.generic]

    @property
    def parameter_size(self) -> int:
        """Length P of the parameters of one action."""
        return self.head_size + self.free_size

    def mask(self, parameters: Array, action_mask: Array | None) -> Array:
        """Parameters with forbidden actions (False in the mask) made impossible; no mask: as they are."""
        if action_mask is None:
            return parameters
        if isinstance(parameters, Tensor):
            return parameters.masked_fill(~action_mask, MASKED_LOGIT)
        return np.where(action_mask, parameters, np.float32(MASKED_LOGIT))

    @abstractmethod
    def noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Random numbers that `sample` turns into actions, for a batch of `shape`; drawn ahead for a whole rollout."""

    @abstractmethod
    def sample(self, parameters: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Random actions."""

    @abstractmethod
    def mode(self, parameters: np.ndarray) -> np.ndarray:
        """Most likely actions."""

    @abstractmethod
    def log_prob_and_entropy(self, parameters: Array, actions: Array) -> tuple[Array, Array]:
        """log pi(action) and the entropy, [...] each."""

    @abstractmethod
    def with_gradient(self, parameters: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, Pullback]:
        """log-prob [B], entropy [B], and the function that carries their gradients back to the parameters [B, P]."""

    @abstractmethod
    def probabilities(self, parameters: np.ndarray) -> np.ndarray | None:
        """Probability of each choice, for people to look at; None where actions are continuous."""

    def moments(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and deviation of each dimension, for people to look at; None where actions are choices."""
        return None

    @abstractmethod
    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Stored actions as the environment takes them: shaped, offset, within its bounds."""

    def log_prob(self, parameters: Array, actions: Array) -> Array:
        """log pi(action), [...]."""
        return self.log_prob_and_entropy(parameters, actions)[0]


class Categorical(Distribution):
    """One of `size` choices. Parameters are logits."""

    action_shape = ()
    action_dtype = np.int64

    def __init__(self, size: int, start: int = 0) -> None:
        self.head_size = size
        self.start = start

    def noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Gumbel noise: the argmax of logits + noise is a sample of the softmax."""
        exponential = generator.standard_exponential((*shape, self.head_size), dtype=np.float32)
        np.maximum(exponential, np.finfo(np.float32).tiny, out=exponential)
        return np.negative(np.log(exponential, out=exponential), out=exponential)

    def sample(self, parameters: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Random choices."""
        return (parameters + noise).argmax(axis=-1)

    def mode(self, parameters: np.ndarray) -> np.ndarray:
        """Choices with the largest logit."""
        return parameters.argmax(axis=-1)

    def log_prob_and_entropy(self, parameters: Array, actions: Array) -> tuple[Array, Array]:
        """log softmax at the action, and -sum p log p."""
        log_p = _log_softmax(parameters)
        return _pick(log_p, actions), -(_exp(log_p) * log_p).sum(-1)

    def with_gradient(self, parameters: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, Pullback]:
        """d log p(a) / d logits = onehot(a) - p;  d H / d logits = -p (log p + H)."""
        # Column order: reductions over a handful of choices run along the batch, and `chosen` indexes flat memory.
        log_p = _log_softmax(np.asfortranarray(parameters))
        p = np.exp(log_p)
        entropy = -(p * log_p).sum(-1)
        chosen = actions * len(actions) + np.arange(len(actions))

        def pullback(d_log_prob: np.ndarray, d_entropy: float) -> np.ndarray:
            if d_entropy:
                gradient = log_p + entropy[:, None]
                gradient *= np.float32(-d_entropy)
                gradient -= d_log_prob[:, None]
                gradient *= p
            else:
                gradient = p * -d_log_prob[:, None]
            gradient.T.reshape(-1)[chosen] += d_log_prob
            return gradient

        return log_p.T.reshape(-1).take(chosen), entropy, pullback

    def probabilities(self, parameters: np.ndarray) -> np.ndarray:
        """Softmax [..., size]."""
        return np.exp(_log_softmax(parameters))

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Choices counted from the space's own start."""
        return actions + self.start if self.start else actions


class MultiCategorical(Distribution):
    """Several independent choices (MultiDiscrete). Parameters are the logits of all, one after the other."""

    action_dtype = np.int64

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        sizes = space.nvec.ravel().tolist()
        self.parts = [Categorical(size) for size in sizes]
        self.head_size = sum(sizes)
        self.action_shape = (len(sizes),)
        ends = np.cumsum(sizes).tolist()
        self.slices = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        self.space = space

    def noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Gumbel noise for each logit."""
        return Categorical(self.head_size).noise(generator, shape)

    def sample(self, parameters: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Random choices [..., K]."""
        return self.mode(parameters + noise)

    def mode(self, parameters: np.ndarray) -> np.ndarray:
        """The largest logit of each choice [..., K]."""
        return np.stack([parameters[..., part].argmax(axis=-1) for part in self.slices], axis=-1)

    def log_prob_and_entropy(self, parameters: Array, actions: Array) -> tuple[Array, Array]:
        """Sums over the choices."""
        terms = [
            part.log_prob_and_entropy(parameters[..., where], actions[..., k])
            for k, (part, where) in enumerate(zip(self.parts, self.slices, strict=True))
        ]
        return sum(term[0] for term in terms), sum(term[1] for term in terms)

    def with_gradient(self, parameters: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, Pullback]:
        """Each choice pulls back to its own logits."""
        terms = [
            part.with_gradient(parameters[:, where], actions[:, k])
            for k, (part, where) in enumerate(zip(self.parts, self.slices, strict=True))
        ]

        def pullback(d_log_prob: np.ndarray, d_entropy: float) -> np.ndarray:
            return np.concatenate([term[2](d_log_prob, d_entropy) for term in terms], axis=-1)

        return sum(term[0] for term in terms), sum(term[1] for term in terms), pullback  # type: ignore[return-value]

    def probabilities(self, parameters: np.ndarray) -> np.ndarray:
        """Softmax of each choice, one after the other [..., sum of sizes]."""
        return np.concatenate([np.exp(_log_softmax(parameters[..., where])) for where in self.slices], axis=-1)

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Choices in the space's shape, counted from its own start."""
        shaped = actions.reshape(actions.shape[:-1] + self.space.shape)
        return (shaped + self.space.start).astype(self.space.dtype, copy=False)


class Bernoulli(Distribution):
    """Independent switches (MultiBinary). Parameters are the logits of "on"; a mask forbids "on"."""

    action_dtype = np.int8

    def __init__(self, space: spaces.MultiBinary) -> None:
        self.space = space
        self.head_size = int(np.prod(space.shape))
        self.action_shape = (self.head_size,)

    def noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Logistic noise: logit + noise > 0 with probability sigmoid(logit)."""
        return generator.logistic(size=(*shape, self.head_size)).astype(np.float32)

    def sample(self, parameters: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Random switches."""
        return (parameters + noise > 0).astype(np.int8)

    def mode(self, parameters: np.ndarray) -> np.ndarray:
        """On where that is the likelier."""
        return (parameters > 0).astype(np.int8)

    def log_prob_and_entropy(self, parameters: Array, actions: Array) -> tuple[Array, Array]:
        """log p = a l - softplus(l);  H = softplus(l) - l sigmoid(l)."""
        softplus = _softplus(parameters)
        log_prob = (actions * parameters - softplus).sum(-1)
        return log_prob, (softplus - parameters * _exp(parameters - softplus)).sum(-1)

    def with_gradient(self, parameters: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, Pullback]:
        """d log p / d l = a - sigmoid(l);  d H / d l = -l sigmoid(l) (1 - sigmoid(l))."""
        log_prob, entropy = self.log_prob_and_entropy(parameters, actions)
        on = self.probabilities(parameters)

        def pullback(d_log_prob: np.ndarray, d_entropy: float) -> np.ndarray:
            return d_log_prob[:, None] * (actions - on) - np.float32(d_entropy) * parameters * on * (1 - on)

        return log_prob, entropy, pullback

    def probabilities(self, parameters: np.ndarray) -> np.ndarray:
        """Probability of "on"."""
        return np.exp(parameters - _softplus(parameters))

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Switches in the space's shape."""
        return actions.reshape(actions.shape[:-1] + self.space.shape)


class DiagonalGaussian(Distribution):
    """Continuous actions. Parameters are [means, log-stds]; the log-std is the same for every observation.

    The raw sample is stored and scored; only what the environment sees is clipped to its bounds.
    """

    action_dtype = np.float32

    def __init__(self, space: spaces.Box) -> None:
        self.space = space
        self.head_size = self.free_size = int(np.prod(space.shape))
        self.action_shape = (self.head_size,)

    def mask(self, parameters: Array, action_mask: Array | None) -> Array:
        """Continuous actions have no mask."""
        if action_mask is not None:
            raise ConfigError("The environment gives an action mask, and continuous actions cannot be masked.")
        return parameters

    def noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal noise."""
        return generator.standard_normal((*shape, self.head_size), dtype=np.float32)

    def sample(self, parameters: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """mean + std * noise, unclipped."""
        mean, log_std = self._split(parameters)
        return mean + np.exp(log_std) * noise

    def mode(self, parameters: np.ndarray) -> np.ndarray:
        """The means."""
        return self._split(parameters)[0].copy()

    def log_prob_and_entropy(self, parameters: Array, actions: Array) -> tuple[Array, Array]:
        """log N(a | mean, std) and the entropy 1/2 + 1/2 log 2 pi + log std, summed over dimensions."""
        mean, log_std = self._split(parameters)
        z = (actions - mean) * _exp(-log_std)
        return (-0.5 * z * z - log_std - HALF_LOG_TWO_PI).sum(-1), (log_std + (0.5 + HALF_LOG_TWO_PI)).sum(-1)

    def with_gradient(self, parameters: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, Pullback]:
        """d log N / d mean = z / std;  d log N / d log std = z^2 - 1;  d H / d log std = 1."""
        log_prob, entropy = self.log_prob_and_entropy(parameters, actions)
        mean, log_std = self._split(parameters)
        inverse_std = np.exp(-log_std)
        z = (actions - mean) * inverse_std

        def pullback(d_log_prob: np.ndarray, d_entropy: float) -> np.ndarray:
            d_mean = d_log_prob[:, None] * z * inverse_std
            d_log_std = d_log_prob[:, None] * (z * z - 1) + np.float32(d_entropy)
            return np.concatenate([d_mean, d_log_std], axis=-1)

        return log_prob, entropy, pullback

    def probabilities(self, parameters: np.ndarray) -> None:
        """A density has no probability to show."""

    def moments(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[B, D] means, before they are clipped to the bounds, and standard deviations."""
        mean, log_std = self._split(parameters)
        return mean, np.exp(log_std)

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Actions in the space's shape, clipped to its bounds."""
        shaped = actions.reshape(actions.shape[:-1] + self.space.shape)
        return np.clip(shaped, self.space.low, self.space.high).astype(self.space.dtype, copy=False)

    def _split(self, parameters: Array) -> tuple[Array, Array]:
        return parameters[..., : self.head_size], parameters[..., self.head_size :]


def distribution_for(action_space: Space) -> Distribution:
    """The distribution that acts in `action_space`."""
    if isinstance(action_space, spaces.Discrete):
        return Categorical(int(action_space.n), int(action_space.start))
    if isinstance(action_space, spaces.MultiDiscrete):
        return MultiCategorical(action_space)
    if isinstance(action_space, spaces.MultiBinary):
        return Bernoulli(action_space)
    if isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating):
        return DiagonalGaussian(action_space)
    raise ConfigError(
        f"Action space {action_space} is not one a policy can act in: "
        f"Discrete, MultiDiscrete, MultiBinary and floating-point Box are. "
        f"A wrapper (env_wrappers) can turn it into one of them."
    )


def _exp(x: Array) -> Array:
    return x.exp() if isinstance(x, Tensor) else np.exp(x)


def _softplus(x: Array) -> Array:
    """log(1 + e^x) without overflow."""
    return torch.nn.functional.softplus(x) if isinstance(x, Tensor) else np.logaddexp(x, np.float32(0))


def _log_softmax(logits: Array) -> Array:
    if isinstance(logits, Tensor):
        return torch.log_softmax(logits, -1)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def _pick(table: Array, index: Array) -> Array:
    """table[..., index[...]]."""
    if isinstance(table, Tensor):
        return table.gather(-1, index.long().unsqueeze(-1)).squeeze(-1)
    return np.take_along_axis(table, index[..., None], axis=-1)[..., 0]
