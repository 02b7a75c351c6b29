"""silu(GroupNorm(x)), for images with channels last on a processor.

torch goes through small maps with few channels to a group one number at a time; read as rows of channels they take a quarter of that, with
gradients half. Larger groups, other devices and other precisions are left to torch.

    y = x s + o      s = w / sd,  o = b - mean s      mean, sd of each image's group
    dx = dy s + c x + d      c, d of each image's group: what mean and sd owe to x
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

MOST_TOGETHER = 4
"""Channels of a group up to which this pays."""
SMALL_MAP = 1024
"""Places of a map below which torch's own forward pass is slow."""
AT_ONCE = 2**18
"""Numbers of an image, or of several small ones, that are gone through together: about what a core's cache holds."""


class NormSiLU(nn.GroupNorm):
    """Both in one."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> the same."""
        together = self.num_channels // self.num_groups
        exact = x.dtype == self.weight.dtype and x.dtype.itemsize >= 4
        if together > MOST_TOGETHER or not x.is_cpu or not exact:
            return functional.silu(super().forward(x), inplace=True)
        normed: Tensor = _NormSiLU.apply(x, self.weight, self.bias, self.num_groups, self.eps)
        return normed


class _NormSiLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        count, channels, height, width = x.shape
        rows = _rows(x)
        if height * width < SMALL_MAP:
            mean, rate = _moments(rows, groups, eps)
            scale, offset = _affine(mean, rate, weight, bias)
            normed = torch.addcmul(offset, rows, scale).view(count, height, width, channels).permute(0, 3, 1, 2)
        else:
            places = height * width
            normed, mean, rate = torch.native_group_norm(x, weight, bias, count, channels, places, groups, eps)
        ctx.save_for_backward(rows, weight, bias, mean, rate)
        return functional.silu(normed, inplace=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        rows, weight, bias, mean, rate = ctx.saved_tensors
        count, places, channels = rows.shape
        outer, dx = _rows(gradient), torch.empty_like(rows)
        d_affine = torch.zeros(2, channels, dtype=weight.dtype)
        together = max(1, AT_ONCE // (places * channels))
        for start in range(0, count, together):
            part = slice(start, start + together)
            d_affine += _part_backward(outer[part], rows[part], mean[part], rate[part], weight, bias, out=dx[part])
        shaped = dx.view(count, *gradient.shape[2:], channels).permute(0, 3, 1, 2)
        return shaped, *d_affine, None, None


def _part_backward(
    gradient: Tensor, rows: Tensor, mean: Tensor, rate: Tensor, weight: Tensor, bias: Tensor, *, out: Tensor
) -> Tensor:
    """Put dx of a few images into `out`; returns what they give to the gradients of weight and bias, [2, C]."""
    groups, channels = mean.shape[1], len(weight)
    scale, offset = _affine(mean, rate, weight, bias)
    normed = torch.addcmul(offset, rows, scale)
    d_normed = torch.ops.aten.silu_backward(gradient, normed)
    # Sums over places, [N, G, C / G].
    sums = d_normed.sum(1).unflatten(1, (groups, -1))
    products = torch.mul(d_normed, rows, out=normed).sum(1).unflatten(1, (groups, -1))
    by_group = weight.view(groups, -1)
    sum_all, product_all = (sums * by_group).sum(-1), (products * by_group).sum(-1)  # [N, G]
    size = rows.shape[1] * channels // groups
    slope = (sum_all * mean - product_all) * rate**3 / size
    level = -slope * mean - sum_all * rate / size
    slopes, levels = (_by_channel(value, channels) for value in (slope, level))
    torch.addcmul(levels, rows, slopes, out=out).addcmul_(d_normed, scale)
    d_weight = (products - sums * mean.unsqueeze(-1)) * rate.unsqueeze(-1)
    return torch.stack([d_weight, sums]).sum(1).flatten(1)


def _rows(x: Tensor) -> Tensor:
    """[N, C, H, W] -> [N, H W, C]; a view where channels are last."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def _moments(rows: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    """[N, G] mean and one by the deviation of each group."""
    mean, square = (value.mean(1).unflatten(1, (groups, -1)).mean(2) for value in (rows, rows.square()))
    return mean, (square - mean.square()).clamp_(min=0).add_(eps).rsqrt_()


def _affine(mean: Tensor, rate: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """[N, 1, C] scale and offset of each channel."""
    mean, rate = (_by_channel(value, len(weight)) for value in (mean, rate))
    scale = rate * weight
    return scale, torch.addcmul(bias, mean, scale, value=-1)


def _by_channel(value: Tensor, channels: int) -> Tensor:
    """[N, G] -> [N, 1, C]."""
    together = channels // value.shape[1]
    return value.repeat_interleave(together, dim=1).unsqueeze(1) if together > 1 else value.unsqueeze(1)
