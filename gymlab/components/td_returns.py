"""Returns along imagined or replayed sequences, in torch, time first.

    s[0] --> s[1] --> ... --> s[H]       reward[t], discount[t]: of arriving in s[t], and of going on from there
    v[0]     v[1]             v[H]       values of the states

    R[t] = reward[t+1] + discount[t+1] * (what follows s[t+1]),   t = 0 .. H-1

Rewards and discounts at t = 0 belong to the step before the sequence and are not used. `discount` is gamma times the
probability of going on: 0 where the episode terminated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def lambda_return(reward: Tensor, discount: Tensor, value: Tensor, lam: float | Tensor) -> Tensor:
    """R[t] = r[t+1] + c[t+1] ((1 - lambda) v[t+1] + lambda R[t+1]), R[H] = v[H]: [H + 1, ...] -> [H, ...].

    `lam` may be a tensor [H, ...] that belongs to the states s[1] .. s[H]: 0 cuts the sequence there.
    """
    _check(reward, discount, value)
    mixed = reward[1:] + discount[1:] * (1 - lam) * value[1:]
    decay = discount[1:] * lam
    returns = torch.empty_like(mixed)
    following = value[-1]
    for t in range(len(mixed) - 1, -1, -1):
        following = torch.addcmul(mixed[t], decay[t], following)
        returns[t] = following
    return returns


def differentiable_lambda_return(reward: Tensor, discount: Tensor, value: Tensor, lam: float) -> Tensor:
    """The same for gradients that go through the whole recursion (Dreamer v1 and v2 on continuous actions)."""
    _check(reward, discount, value)
    mixed = reward[1:] + discount[1:] * (1 - lam) * value[1:]
    following = value[-1]
    returns = []
    for inputs, decay in zip(mixed.flip(0).unbind(0), (discount[1:] * lam).flip(0).unbind(0), strict=True):
        following = inputs + decay * following
        returns.append(following)
    return torch.stack(returns[::-1])


def discounted_return(reward: Tensor, discount: Tensor, value: Tensor) -> Tensor:
    """The rewards of the whole sequence and the value of its last state: lambda = 1."""
    return lambda_return(reward, discount, value, 1.0)


def n_step_return(reward: Tensor, discount: Tensor, value: Tensor, steps: int) -> Tensor:
    """The rewards of the next `steps` states and the value of the last of them; near the end, of s[H]."""
    _check(reward, discount, value)
    horizon = len(reward) - 1
    last = torch.arange(horizon).add_(steps).clamp_(max=horizon)  # the state whose value ends each return
    returns = value[last].clone()
    for k in range(min(steps, horizon), 0, -1):
        # The k-th state after t, where the return reaches that far.
        rows = slice(0, horizon + 1 - k)
        returns[rows] = reward[k:] + discount[k:] * returns[rows]
    return returns


def _check(reward: Tensor, discount: Tensor, value: Tensor) -> None:
    """A [T, N] beside a [T, N, 1] would broadcast in silence."""
    if not reward.shape == discount.shape == value.shape or len(reward) < 2:
        raise ValueError(
            f"Returns take arrays [H + 1, ...] of one shape, got {[tuple(x.shape) for x in (reward, discount, value)]}."
        )


class ReturnScale(nn.Module):
    """The range that returns span, from their 5th to their 95th percentile, as a moving average from 0 (Dreamer v3).

    Advantages are divided by it, but never by less than 1: small returns are not blown up to the size of large ones.
    """

    low: Tensor
    high: Tensor

    def __init__(self, rate: float = 0.01, percentiles: tuple[float, float] = (0.05, 0.95)) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))
        self.register_buffer("percentiles", torch.tensor(percentiles), persistent=False)

    @torch.no_grad()
    def update(self, returns: Tensor) -> Tensor:
        """Take in a batch of returns; gives the scale."""
        percentiles: Any = self.percentiles
        low, high = torch.quantile(returns.detach().flatten(), percentiles).unbind(0)
        self.low.lerp_(low, self.rate)
        self.high.lerp_(high, self.rate)
        return self.scale

    @property
    def scale(self) -> Tensor:
        """max(1, high - low)."""
        return (self.high - self.low).clamp(min=1.0)
