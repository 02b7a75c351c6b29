"""Layers of DreamerV3's networks: truncated normal initialisation, root-mean-square normalisation, block-diagonal maps."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.errors import ConfigError

TRUNCATION_GAIN = 1.1368
"""A normal cut at two standard deviations keeps 0.8796 of its spread; this puts it back to one."""
NORM_EPS = 1e-4


@torch.no_grad()
def init_truncated_normal(weight: Tensor, fan_in: int, scale: float = 1.0) -> Tensor:
    """Fill `weight` in place with a normal cut at two standard deviations whose variance is scale^2 / fan_in."""
    if scale == 0:
        return weight.zero_()
    deviation = TRUNCATION_GAIN / math.sqrt(fan_in)
    return nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation).mul_(scale)


def normed_linear(in_features: int, out_features: int, scale: float = 1.0) -> nn.Linear:
    """A linear layer initialised as DreamerV3's: truncated normal weights times `scale`, zero biases."""
    layer = nn.Linear(in_features, out_features)
    init_truncated_normal(layer.weight, in_features, scale)
    nn.init.zeros_(layer.bias)
    return layer


class RMSNorm(nn.Module):
    """Divides the last dimension by its root mean square, then multiplies by a learned scale."""

    def __init__(self, size: int, eps: float = NORM_EPS) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> [..., size]."""
        return functional.rms_norm(x, self.scale.shape, self.scale, self.eps)


class _NormSiLU(torch.autograd.Function):
    """silu(scale * x / rms(x)) over some dimensions, in one node: the parts would take five times as many."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, eps: float, dims: tuple[int, ...]) -> Tensor:
        """The value; only `x` and the inverse of its size are kept."""
        inverse = inverse_rms(x, eps, dims)
        ctx.save_for_backward(x, scale, inverse)
        ctx.dims = dims
        return functional.silu(x.mul(inverse).mul_(scale), inplace=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """d/dx = (g - n mean(g n)) / rms with n = x / rms and g the gradient behind the scale."""
        x, scale, inverse = ctx.saved_tensors
        normal = x * inverse
        gradient = torch.ops.aten.silu_backward(gradients[0], normal * scale)
        along = gradient * normal
        others = [dim for dim in range(x.dim()) if dim - x.dim() not in ctx.dims]
        d_scale = along.sum(others, keepdim=True).reshape(scale.shape)
        shared = along.mul_(scale).mean(ctx.dims, keepdim=True)
        return gradient.mul_(scale).addcmul_(normal, shared, value=-1).mul_(inverse), d_scale, None, None


def inverse_rms(x: Tensor, eps: float, dims: tuple[int, ...]) -> Tensor:
    """1 / sqrt(mean x^2 + eps), dimensions kept."""
    count = math.prod(x.shape[dim] for dim in dims)
    square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    if len(dims) > 1:
        square = square.sum(dims[0], keepdim=True)
    return square.mul_(1 / count).add_(eps).rsqrt_()


class NormSiLU(nn.Module):
    """RMSNorm over the last dimension and SiLU, as one operation with little memory.

    With `blocks` the features of a row are spread over the first dimension too: [blocks, N, size / blocks].
    """

    def __init__(self, size: int, blocks: int | None = None, eps: float = NORM_EPS) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size) if blocks is None else torch.ones(blocks, 1, size // blocks))
        self.dims = (-1,) if blocks is None else (-3, -1)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        if torch.is_grad_enabled() and (x.requires_grad or self.scale.requires_grad):
            value: Tensor = _NormSiLU.apply(x, self.scale, self.eps, self.dims)
            return value
        inverse = inverse_rms(x, self.eps, self.dims)
        return functional.silu(x.mul(inverse).mul_(self.scale), inplace=True)


class NormedLayer(nn.Sequential):
    """A linear layer with its norm and SiLU."""

    linear: nn.Linear
    norm: NormSiLU

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(
            OrderedDict(linear=normed_linear(in_features, out_features), norm=NormSiLU(out_features)),
        )


class BlockLinear(nn.Module):
    """A linear map with a block-diagonal matrix: `blocks` independent maps over as many equal parts of the input."""

    def __init__(self, in_features: int, out_features: int, blocks: int, scale: float = 1.0) -> None:
        super().__init__()
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if size % blocks:
                raise ConfigError(
                    f"A block-diagonal layer of {blocks} blocks needs sizes that {blocks} divides, and {name} is {size}."
                )
        self.blocks = blocks
        self.weight = nn.Parameter(torch.empty(blocks, in_features // blocks, out_features // blocks))
        self.bias = nn.Parameter(torch.zeros(out_features))
        # The authors' code counts the whole input as fan-in, though each block sees only its part of it.
        init_truncated_normal(self.weight, in_features, scale)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]."""
        parts = x.reshape(-1, self.blocks, self.weight.shape[1]).transpose(0, 1)  # [blocks, N, in/blocks]
        bias = self.bias.view(self.blocks, 1, -1)
        mapped = torch.baddbmm(bias, parts, self.weight)  # [blocks, N, out/blocks]
        return mapped.transpose(0, 1).reshape(*x.shape[:-1], -1)
