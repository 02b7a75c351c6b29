"""The convolutions of DreamerV3's image codecs in a form that processors are quick at.

A 5x5 convolution with few channels leaves most of a processor's lanes idle. Taken for 2x2 blocks of its outputs at once,
it reads a 6x6 window, which is 3x3 blocks of 2x2 pixels:

    encoder: 5x5, then the largest of each 2x2 block  = 3x3 over blocks of pixels, then the largest of 4 outputs
    decoder: each pixel to a 2x2 block, then 5x5      = 3x3 over pixels (the four of a block are equal), 4 outputs

Both are the same function of the same 5x5 weights. Inside, images lie with their channels last, [N, height, width, C].
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gymlab.components.winograd import convolution_3x3

BLOCK = 4
"""Pixels of a 2x2 block, in the order (0, 0), (0, 1), (1, 0), (1, 1)."""
TILE = 16
"""So many pixels are scaled as one row: loops over the few channels of one pixel would be mostly overhead."""


def block_kernel(weight: Tensor) -> Tensor:
    """The 5x5 kernel over 2x2 blocks of pixels: [O, I, 5, 5] -> [4O, 4I, 3, 3]."""
    outputs, inputs = weight.shape[:2]
    return block_window(weight).permute(0, 3, 5, 1, 2, 4).reshape(BLOCK * outputs, BLOCK * inputs, 3, 3)


def upsampled_kernel(weight: Tensor) -> Tensor:
    """The 5x5 kernel over pixels that each became a 2x2 block: [O, I, 5, 5] -> [4O, I, 3, 3]."""
    return block_window(weight).sum(dim=(3, 5))


def block_window(weight: Tensor) -> Tensor:
    """The kernel at the four places of a 2x2 block, in the 6x6 window that they share: [4O, I, 3, 2, 3, 2]."""
    places = [functional.pad(weight, (column, 1 - column, row, 1 - row)) for row in (0, 1) for column in (0, 1)]
    window = torch.cat(places)
    return window.view(*window.shape[:2], 3, 2, 3, 2)


def pixels_to_blocks(x: Tensor) -> Tensor:
    """[N, H, W, C] -> [N, H/2, W/2, 4C]."""
    frames, height, width, channels = x.shape
    x = x.view(frames, height // 2, 2, width // 2, 2, channels).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(frames, height // 2, width // 2, BLOCK * channels)


def blocks_to_pixels(x: Tensor) -> Tensor:
    """[N, H, W, 4C] -> [N, 2H, 2W, C]."""
    frames, height, width, channels = x.shape
    x = x.view(frames, height, width, 2, 2, channels // BLOCK).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(frames, 2 * height, 2 * width, channels // BLOCK)


def image_blocks(images: Tensor) -> Tensor:
    """Images as they are stored, in 2x2 blocks: [N, C, H, W] -> [N, H/2, W/2, 4C], type unchanged."""
    frames, channels, height, width = images.shape
    shape = (frames, height // 2, width // 2, BLOCK * channels)
    if images.device.type == "cpu":
        # Seven times quicker than a permuted copy, which would move single bytes.
        order = _block_order(channels, height, width)
        return torch.from_numpy(np.take(images.flatten(1).numpy(), order, axis=1)).view(shape)
    return _permuted(images).reshape(shape)


@lru_cache(maxsize=8)
def _block_order(channels: int, height: int, width: int) -> np.ndarray:
    """Where each number of an image in blocks comes from."""
    places = torch.arange(channels * height * width).view(1, channels, height, width)
    return _permuted(places).flatten().numpy()


def _permuted(images: Tensor) -> Tensor:
    frames, channels, height, width = images.shape
    return images.reshape(frames, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 3, 5, 1)


def convolve(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """A 3x3 convolution that keeps the size: [N, H, W, I] -> [N, H, W, O]."""
    return convolution_3x3(x.permute(0, 3, 1, 2), kernel, bias).permute(0, 2, 3, 1)


def normed_silu(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """silu(scale * x / rms(x)) over the last dimension, in groups of the scale's size: [..., C] -> [..., C]."""
    with torch.autocast(x.device.type, enabled=False):
        value: Tensor = _NormedSiLU.apply(x.to(scale.dtype).reshape(-1, scale.numel()), scale, eps)
    return value.view(x.shape)


def largest_of_blocks(x: Tensor) -> Tensor:
    """The largest of the four outputs of each block: [N, H, W, 4C] -> [N, H, W, C]."""
    frames, height, width, channels = x.shape
    # As an image with a block for a row, this is a case for the pooling that runs along the channels.
    rows = x.reshape(frames, height * width, BLOCK, channels // BLOCK).permute(0, 3, 1, 2)
    pooled = functional.max_pool2d(rows, (1, BLOCK)).permute(0, 2, 3, 1)
    return pooled.reshape(frames, height, width, channels // BLOCK)


def sigmoid_squared_error(logits: Tensor, target: Tensor) -> Tensor:
    """Sum of (sigmoid(logits) - target)^2 over all but the first dimension: [N, ...] -> [N]."""
    value: Tensor = _SigmoidSquaredError.apply(logits.to(target.dtype), target)
    return value


class _NormedSiLU(torch.autograd.Function):
    """One node that keeps little more than its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, eps: float) -> Tensor:
        value, inverse = _forward(x, scale, eps)
        ctx.save_for_backward(x, inverse, scale)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return (*_backward(gradients[0], *ctx.saved_tensors), None)


def _forward(x: Tensor, scale: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The value [M, C], and 1 / rms(x), [M, 1]; the mean as a product, which is quicker than a sum over few channels."""
    size = scale.numel()
    squares = x * x
    inverse = (squares @ x.new_full((size, 1), 1 / size)).add_(eps).rsqrt_()
    normal = torch.mul(x, inverse, out=squares)
    return functional.silu(_scaled(normal, scale, normal), inplace=True), inverse


def _backward(gradient: Tensor, x: Tensor, inverse: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """With n = x / rms(x) and g the gradient at scale * n: d_x = (scale g - n mean(scale g n)) / rms(x)."""
    size = scale.numel()
    normal = x * inverse
    product = _scaled(normal, scale, torch.empty_like(x))
    gradient = torch.ops.aten.silu_backward(gradient, product)
    torch.mul(gradient, normal, out=product)
    d_scale = product.sum(dim=0)
    shared = product @ scale.div(-size).unsqueeze(1).expand(size, size)  # the mean, in every channel: [M, C]
    return _scaled(gradient, scale, gradient).addcmul_(normal, shared).mul_(inverse), d_scale


def _scaled(x: Tensor, scale: Tensor, out: Tensor) -> Tensor:
    """`x` times `scale`, [M, C]; many pixels as one row where they fill it."""
    if x.shape[0] % TILE == 0:
        row = scale.expand(TILE, -1).reshape(-1)
        torch.mul(x.view(-1, len(row)), row, out=out.view(-1, len(row)))
        return out
    return torch.mul(x, scale, out=out)


class _SigmoidSquaredError(torch.autograd.Function):
    """The gradient is worked out beside the value, while the pixels are at hand, and kept in place of them."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        mean = torch.sigmoid(logits)
        error = mean - target
        loss = error.flatten(1).square().sum(dim=1)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(torch.ops.aten.sigmoid_backward(error.mul_(2), mean))
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return slope * gradients[0].view(-1, *[1] * (slope.dim() - 1)), None
