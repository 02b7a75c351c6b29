"""Numbers of any size for networks: the symmetric logarithm, and scalars as a choice among bins (Hafner et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components.full_precision import full_precision

BINS = 255
"""Bins of a scalar; odd, so that the one in the middle is 0."""
REACH = 20.0
"""The outermost bins lie at symexp(+-20), about +-4.85e8."""
Neighbours = tuple[Tensor, Tensor, Tensor]
"""The bins below and above each number, and the share of the one above."""


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|): x near 0, a logarithm far away."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of symlog."""
    return x.sign() * x.abs().expm1()


ROWS_AT_ONCE = 1024
"""Rows of bins that are worked on together: so many fit the processor's cache, where 255 numbers a row soon do not."""


class _TwoHotLoss(torch.autograd.Function):
    """Cross-entropy behind a linear layer: value and gradients in one pass over rows that never leave the cache.

    d loss / d logits = weight (K p - sum of the K targets' two bins), and the linear layer's own gradients follow from it at once.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: tuple[Neighbours, ...], weights: Tensor
    ) -> Tensor:
        """hidden [N, H] -> the sum over rows of weights [N] times the K cross-entropies."""
        total = hidden.new_zeros(())
        d_hidden, d_weight, d_bias = torch.empty_like(hidden), torch.zeros_like(weight), torch.zeros_like(bias)
        for start in range(0, len(hidden), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            log_p = functional.log_softmax(torch.addmm(bias, hidden[rows], weight.t()), -1)
            row_weights = weights[rows].unsqueeze(-1)
            gradient = log_p.exp().mul_(row_weights * len(targets))
            for below, above, share in targets:
                place, portion = torch.stack([below[rows], above[rows]], -1), share[rows]
                portion = torch.stack([1 - portion, portion], -1).mul_(row_weights)
                total -= (log_p.gather(-1, place) * portion).sum()
                gradient.scatter_add_(-1, place, -portion)
            torch.mm(gradient, weight, out=d_hidden[rows])
            d_weight.addmm_(gradient.t(), hidden[rows])
            d_bias += gradient.sum(0)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """What was computed on the way, times what comes from behind."""
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return d_hidden * gradients[0], d_weight * gradients[0], d_bias * gradients[0], None, None


class TwoHot(nn.Module):
    """A scalar as a distribution over bins: learned by cross-entropy with the two bins around the target, read as a mean.

    `symexp` places the bins at symexp(-20 .. 20) and mixes the raw numbers (Dreamer v3 as it is now); `symlog` places
    them evenly and mixes logarithms (v3 of 2023, TD-MPC2). The same weights mean different numbers in the two.
    """

    bins: Tensor

    def __init__(
        self, count: int = BINS, reach: float = REACH, spacing: Literal["symexp", "symlog"] = "symexp"
    ) -> None:
        super().__init__()
        if count % 2 == 0:
            raise ValueError(f"The number of bins is odd, so that 0 is one of them; got {count}.")
        half = torch.linspace(0, reach, count // 2 + 1, dtype=torch.float64)
        half = symexp(half) if spacing == "symexp" else half
        self.spacing = spacing
        self.size = count
        self.register_buffer("bins", torch.cat([-half[1:].flip(0), half]).float(), persistent=False)

    @full_precision
    def mean(self, logits: Tensor) -> Tensor:
        """[..., bins] -> [...] the expected number.

        Bins are symmetric, so each is added together with its mirror image: equal weights give exactly 0, where the plain
        sum of numbers up to 5e8 in float32 gives -1.
        """
        p = logits.softmax(-1)
        middle = self.size // 2
        difference = p[..., middle + 1 :] - p[..., :middle].flip(-1)
        value = difference @ self.bins[middle + 1 :]
        return value if self.spacing == "symexp" else symexp(value)

    def _neighbours(self, x: Tensor) -> Neighbours:
        x = x if self.spacing == "symexp" else symlog(x)
        x = x.clamp(self.bins[0], self.bins[-1])
        above = torch.searchsorted(self.bins, x.contiguous()).clamp_(1, self.size - 1)
        below = above - 1
        low, high = self.bins[below], self.bins[above]
        return below, above, (x - low) / (high - low)

    def encode(self, x: Tensor) -> Tensor:
        """[...] -> [..., bins] weights of the two bins around each number; all others are 0."""
        below, above, share = self._neighbours(x)
        weights = torch.zeros(*x.shape, self.size, device=x.device)
        weights.scatter_(-1, below.unsqueeze(-1), (1 - share).unsqueeze(-1))
        return weights.scatter_(-1, above.unsqueeze(-1), share.unsqueeze(-1))

    @full_precision
    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """[..., bins], [...] -> [...] cross-entropy."""
        assert logits.shape[:-1] == target.shape, (logits.shape, target.shape)
        below, above, share = self._neighbours(target)
        log_p = functional.log_softmax(logits, -1)
        low, high = (log_p.gather(-1, place.unsqueeze(-1)).squeeze(-1) for place in (below, above))
        return -torch.lerp(low, high, share)

    @full_precision
    def behind(self, layer: nn.Linear, hidden: Tensor) -> Tensor:
        """[..., H] through a linear layer -> [...] expected numbers, without gradients and without all logits in memory."""
        rows = hidden.detach().reshape(-1, hidden.shape[-1]).split(ROWS_AT_ONCE)
        with torch.no_grad():
            return torch.cat([self.mean(layer(part)) for part in rows]).view(hidden.shape[:-1])

    @full_precision
    def loss_behind(self, layer: nn.Linear, hidden: Tensor, targets: Sequence[Tensor], weight: Tensor) -> Tensor:
        """The mean over rows of `weight` times the cross-entropies with all targets, behind a linear layer."""
        flat = hidden.reshape(-1, hidden.shape[-1])
        with torch.no_grad():
            neighbours = tuple(self._neighbours(target.reshape(-1)) for target in targets)
            weights = weight.reshape(-1) / len(flat)
        total: Tensor = _TwoHotLoss.apply(flat, layer.weight, layer.bias, neighbours, weights)
        return total


class UnitNormal(nn.Module):
    """A scalar as the mean of a Normal of deviation 1: what Dreamer v1 and v2 learn rewards and values with."""

    size = 1

    @full_precision
    def mean(self, output: Tensor) -> Tensor:
        """[..., 1] -> [...]."""
        return output.squeeze(-1)

    @full_precision
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Half the squared error; the constant of the density is left out."""
        assert output.shape[:-1] == target.shape, (output.shape, target.shape)
        return 0.5 * (output.squeeze(-1) - target).square()

    @full_precision
    def behind(self, layer: nn.Linear, hidden: Tensor) -> Tensor:
        """[..., H] through a linear layer -> [...], without gradients."""
        with torch.no_grad():
            return self.mean(layer(hidden))

    @full_precision
    def loss_behind(self, layer: nn.Linear, hidden: Tensor, targets: Sequence[Tensor], weight: Tensor) -> Tensor:
        """The mean over rows of `weight` times the losses with all targets."""
        output = layer(hidden)
        return (weight * torch.stack([self.loss(output, target) for target in targets]).sum(0)).mean()
