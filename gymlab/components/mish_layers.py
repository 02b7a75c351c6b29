"""Linear layers with LayerNorm and Mish, as TD-MPC2's networks are made of, with their gradient written out.

torch's Mish takes three functions a number where one exponential does, and its dropout a random number for every unit where one
for every unit that is left out does: by hand such a layer costs little more than its matrix.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LARGEST = 4.8e8
"""e^20: above it mish is its argument to all digits, and its slope 1; its parts are still numbers."""


def mish_(x: Tensor) -> Tensor:
    """x tanh(softplus(x)) = x - 2 x / d with d = (e^x + 1)^2 + 1, in place; a very large x gives an infinite d, and itself."""
    return x.addcdiv_(x, x.exp().add_(1).square_().add_(1), value=-2)


def mish_and_rise_(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mish in place, and a quarter of how far its slope is from 1: (x q / d - 1/2) / d with q = e^x (e^x + 1)."""
    power = x.exp().clamp_(max=LARGEST)
    rise = torch.addcmul(power, power, power)
    inverse = power.add_(rise).add_(2).reciprocal_()  # 1 / d, since d = q + e^x + 2
    rise.mul_(x).mul_(inverse).sub_(0.5).mul_(inverse)
    return x.addcmul_(x, inverse, value=-2), rise


def left_out(count: int, share: float) -> Tensor:
    """Places among `count` that are left out, each with the same probability and independent of the others.

    The gaps between them are geometric: a hundredth of the random numbers at a share of a hundredth.
    """
    places, last = [], -1
    while last < count:
        expected = (count - last) * share
        gaps = torch.rand(int(expected + 6 * math.sqrt(expected)) + 8, dtype=torch.float64)
        steps = gaps.neg_().log1p_().div_(math.log1p(-share)).floor_().long() + 1
        found = steps.cumsum_(0).add_(last)
        places.append(found)
        last = int(found[-1])
    drawn = places[0] if len(places) == 1 else torch.cat(places)
    return drawn[: int(torch.searchsorted(drawn, count))]


class _MishLayer(torch.autograd.Function):
    """mish(norm(dropout(x W + b))) of rows, [N, I] -> [N, O]; b is a row, or a row for each."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        scale: Tensor,
        shift: Tensor,
        eps: float,
        places: Tensor | None,
    ) -> Tensor:
        """The slope of mish is kept in place of what it was computed from."""
        hidden = torch.addmm(bias, x, weight.t())
        if places is not None:
            hidden.view(-1).index_fill_(0, places, 0.0)
        normed, mean, deviation = torch.native_layer_norm(hidden, scale.shape, scale, shift, eps)
        value, rise = mish_and_rise_(normed)
        ctx.save_for_backward(x, weight, hidden, mean, deviation, scale, shift, rise, places)
        ctx.rows_of_bias = bias.dim() > 1
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Of rows and of what is learned, as far as each is asked for."""
        x, weight, hidden, mean, deviation, scale, shift, rise, places = ctx.saved_tensors
        of_x, of_weight, of_bias, of_scale, of_shift = ctx.needs_input_grad[:5]
        outer = torch.addcmul(gradients[0], gradients[0], rise, value=4)
        inner, d_scale, d_shift = torch.ops.aten.native_layer_norm_backward(
            outer, hidden, scale.shape, mean, deviation, scale, shift, [True, of_scale, of_shift]
        )
        if places is not None:
            inner.view(-1).index_fill_(0, places, 0.0)
        d_bias = (inner if ctx.rows_of_bias else inner.sum(0)) if of_bias else None
        return (
            inner @ weight if of_x else None,
            inner.t() @ x if of_weight else None,
            d_bias,
            d_scale if of_scale else None,
            d_shift if of_shift else None,
            None,
            None,
        )


class SplitLayer(nn.Module):
    """A layer whose input may come in two parts, of which the first is dealt with once: `base`."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def base(self, first: Tensor) -> Tensor:
        """What the first features of an input come to, [..., part of in_features] -> [..., out_features], for `forward`."""
        return functional.linear(first, self.linear.weight[:, : first.shape[-1]], self.linear.bias)

    def weight_and_bias(self, x: Tensor, base: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of the features in x: all of them, or with a base the last ones."""
        if base is None:
            return self.linear.weight, self.linear.bias
        return self.linear.weight[:, -x.shape[-1] :], base


class MishLayer(SplitLayer):
    """A linear layer, dropout while learning, LayerNorm, Mish."""

    def __init__(self, in_features: int, out_features: int, dropout: float = 0.0) -> None:
        super().__init__(in_features, out_features)
        self.norm = nn.LayerNorm(out_features)
        self.dropout = dropout

    def forward(self, x: Tensor, base: Tensor | None = None) -> Tensor:
        """[..., in_features] -> [..., out_features]; with a base, the last features alone, [N, rest] beside [N, out] or [out]."""
        weight, bias = self.weight_and_bias(x, base)
        drops = self.training and self.dropout > 0
        by_hand = x.dtype == weight.dtype and not torch.is_autocast_enabled(x.device.type)
        if not by_hand or (drops and x.device.type != "cpu"):
            hidden = functional.dropout(functional.linear(x, weight) + bias, self.dropout, drops)
            return functional.mish(self.norm(hidden))
        rows = x.reshape(-1, x.shape[-1])
        if torch.is_grad_enabled() or drops:
            places = left_out(len(rows) * len(weight), self.dropout) if drops else None
            # A norm does not see that all units are scaled up for what is left out, but for what it adds to the variance.
            eps = self.norm.eps * ((1 - self.dropout) ** 2 if drops else 1.0)
            value: Tensor = _MishLayer.apply(rows, weight, bias, self.norm.weight, self.norm.bias, eps, places)
        else:
            value = mish_(self.norm(torch.addmm(bias, rows, weight.t())))
        return value.view(*x.shape[:-1], -1)
