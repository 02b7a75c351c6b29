"""Image encoders and decoders of Dreamer: those of v3 here, those of v1 and v2 in `strided_codecs`.

v3 encoder  uint8 [B, C, 64, 64] -> 32x32x2d -> 16x16x3d -> 8x8x4d -> 4x4x4d -> [B, 64d]
v3 decoder  deter, stoch -> 4x4x4d -> 8x8x4d -> 16x16x3d -> 32x32x2d -> 64x64xC in [0, 1]

Each step of the encoder is a 5x5 convolution, a 2x2 max-pool, RMS norm over the channels and SiLU; each of the decoder
doubles the size by repeating pixels before the convolution. d is the depth of the size preset.

`image_kernels` computes them, a few frames at a time: what lies between two convolutions then stays in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal, cast

import torch
from torch import Tensor, nn

from gymlab.components.image_kernels import (
    BLOCK,
    block_kernel,
    blocks_to_pixels,
    convolve,
    image_blocks,
    largest_of_blocks,
    normed_silu,
    pixels_to_blocks,
    sigmoid_squared_error,
    upsampled_kernel,
)
from gymlab.components.normed_layers import BlockLinear, RMSNorm, init_truncated_normal, normed_linear
from gymlab.components.strided_codecs import StridedImageDecoder, StridedImageEncoder
from gymlab.errors import ConfigError

STAGES = (2, 3, 4, 4)
"""Channels after each halving of the image, as multiples of the depth."""
KERNEL = 5
SHRINK = 2 ** len(STAGES)
CACHED = 2**21
"""Numbers that the largest output of a convolution may have: frames are taken by so many that it stays in the cache."""
STRIDED_ACTIVATIONS = {"v1": "relu", "v2": "elu"}
Version = Literal["v1", "v2", "v3"]
BLOCKS = 8
"""Groups of the map from the deterministic state: each makes an eighth of the channels."""


Kernels = list[tuple[Tensor, Tensor]]
"""Weights and biases of a 3x3 convolution for every stage."""


class Convolution(nn.Module):
    """The weights of a 5x5 convolution, initialised as DreamerV3's."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, KERNEL, KERNEL))
        self.bias = nn.Parameter(torch.zeros(outputs))
        init_truncated_normal(self.weight, inputs * KERNEL**2)


class ImageEncoder(nn.Module):
    """The image encoder of DreamerV3."""

    def __init__(self, shape: tuple[int, ...], depth: int) -> None:
        super().__init__()
        check_shape(shape)
        channels, height, width = shape
        stages = [channels, *(depth * multiple for multiple in STAGES)]
        self.convolutions = nn.ModuleList(Convolution(*sizes) for sizes in pairwise(stages))
        self.norms = nn.ModuleList(RMSNorm(size) for size in stages[1:])
        self.size = height // SHRINK * (width // SHRINK) * stages[-1]
        """Length of the code."""
        self.largest = height * width * stages[1]

    def forward(self, images: Tensor) -> Tensor:
        """uint8 [B, C, H, W] -> [B, size]."""
        kernels = kernels_of(self.convolutions, block_kernel)
        parts = images.split(frames_at_once(images, self.largest))
        return torch.cat([self.encode(part, kernels) for part in parts])

    def encode(self, images: Tensor, kernels: Kernels) -> Tensor:
        """A few images through all stages: [N, C, H, W] -> [N, size]."""
        x = image_blocks(images).to(kernels[0][0].dtype).div_(255).sub_(0.5)  # [N, H/2, W/2, 4C]
        for stage, (norm, (kernel, bias)) in enumerate(zip(rms_norms(self.norms), kernels, strict=True)):
            x = pixels_to_blocks(x) if stage else x
            x = largest_of_blocks(convolve(x, kernel, bias))  # [N, H/2, W/2, channels]
            x = normed_silu(x, norm.scale, norm.eps)
        return x.flatten(1)


class ImageDecoder(nn.Module):
    """The image decoder of DreamerV3: the mean of every pixel in [0, 1]."""

    def __init__(self, shape: tuple[int, ...], depth: int, deter: int, stoch: int, units: int) -> None:
        super().__init__()
        check_shape(shape)
        if depth * STAGES[-1] % BLOCKS:
            raise ConfigError(f"cnn_depth: the image decoder of DreamerV3 needs an even one, and it is {depth}.")
        channels, height, width = shape
        stages = [*(depth * multiple for multiple in reversed(STAGES)), channels]
        self.start = (height // SHRINK, width // SHRINK, stages[0])
        """Height, width and channels of the smallest image."""
        size = math.prod(self.start)
        self.from_deter = BlockLinear(deter, size, BLOCKS)
        self.from_stoch = normed_linear(stoch, 2 * units)
        self.stoch_norm = RMSNorm(2 * units)
        self.to_start = normed_linear(2 * units, size)
        self.norms = nn.ModuleList(RMSNorm(size) for size in stages[:-1])
        self.convolutions = nn.ModuleList(Convolution(*sizes) for sizes in pairwise(stages))
        self.largest = height * width * max(stages[-2:])

    def forward(self, deter: Tensor, stoch: Tensor) -> Tensor:
        """[B, deter], [B, stoch] -> mean images in [0, 1], [B, C, H, W]."""
        logits = torch.cat(list(self.decode(self.first(deter, stoch))))
        return torch.sigmoid(blocks_to_pixels(logits)).permute(0, 3, 1, 2)

    def loss(self, deter: Tensor, stoch: Tensor, images: Tensor) -> Tensor:
        """Squared error of the mean images, summed over pixels and channels, given uint8 [B, C, H, W]: [B]."""
        parts = images.split(frames_at_once(images, self.largest))
        losses = []
        for logits, part in zip(self.decode(self.first(deter, stoch)), parts, strict=True):
            losses.append(sigmoid_squared_error(logits, image_blocks(part).to(self.dtype).div_(255)))
        return torch.cat(losses)

    @staticmethod
    def pixels(mean: Tensor) -> Tensor:
        """What `forward` gives, as grey levels from 0 to 255."""
        return mean * 255

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights, in which losses are computed too."""
        return self.to_start.weight.dtype

    def first(self, deter: Tensor, stoch: Tensor) -> Tensor:
        """The smallest image, [B, h, w, channels]: one part from each half of the state."""
        height, width, channels = self.start
        groups: Tensor = self.from_deter(deter).view(-1, BLOCKS, height, width, channels // BLOCKS)
        hidden = normed_silu(self.from_stoch(stoch), self.stoch_norm.scale, self.stoch_norm.eps)
        whole: Tensor = self.to_start(hidden).view(-1, *self.start)
        return whole + groups.permute(0, 2, 3, 1, 4).flatten(3)

    def decode(self, x: Tensor) -> Iterator[Tensor]:
        """A few images at a time through all stages: [B, h, w, channels] -> logits in 2x2 blocks, [N, H/2, W/2, 4C]."""
        kernels = kernels_of(self.convolutions, upsampled_kernel)
        for part in x.split(frames_at_once(x, self.largest)):
            for stage, (norm, (kernel, bias)) in enumerate(zip(rms_norms(self.norms), kernels, strict=True)):
                # Each block holds its four pixels one after the other, so that the norm may come before they part.
                part = normed_silu(part, norm.scale, norm.eps)
                part = convolve(blocks_to_pixels(part) if stage else part, kernel, bias)
            yield part


def image_encoder(version: Version, shape: tuple[int, ...], depth: int) -> ImageEncoder | StridedImageEncoder:
    """The encoder of a version of Dreamer; `size` is the length of its code."""
    if version == "v3":
        return ImageEncoder(shape, depth)
    return StridedImageEncoder(shape, depth, STRIDED_ACTIVATIONS[version])


def image_decoder(
    version: Version, shape: tuple[int, ...], depth: int, deter: int, stoch: int, units: int
) -> ImageDecoder | StridedImageDecoder:
    """The decoder of a version of Dreamer: forward(deter, stoch), loss(deter, stoch, images), pixels(output)."""
    if version == "v3":
        return ImageDecoder(shape, depth, deter, stoch, units)
    return StridedImageDecoder(shape, depth, deter, stoch, STRIDED_ACTIVATIONS[version])


def kernels_of(convolutions: nn.ModuleList, form: Callable[[Tensor], Tensor]) -> Kernels:
    """The weights in the form in which they are used; all four outputs of a block have the same bias."""
    layers = cast("list[Convolution]", list(convolutions))
    return [(form(layer.weight), layer.bias.repeat(BLOCK)) for layer in layers]


def rms_norms(norms: nn.ModuleList) -> list[RMSNorm]:
    """The norms, with their type."""
    return cast("list[RMSNorm]", list(norms))


def frames_at_once(x: Tensor, largest: int) -> int:
    """How many frames go through the stages together, given the numbers of their largest output a frame."""
    return max(1, CACHED // largest) if x.device.type == "cpu" else max(1, len(x))


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse images that cannot be halved four times."""
    if len(shape) == 3 and all(side and side % SHRINK == 0 for side in shape[1:]):
        return
    raise ConfigError(
        f"The image codecs of DreamerV3 take images (channels, height, width) whose sides are multiples of {SHRINK}, "
        f"and these observations are {tuple(shape)}: set resize_obs: [64, 64], or [96, 96] for finer pictures."
    )
