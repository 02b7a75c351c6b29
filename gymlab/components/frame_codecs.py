"""Convolutional networks of Δ-IRIS: a frame to a small grid of features, and back.

    encoder  [N, I, 64, 64] -> 3x3 -> (residual block -> halve?) for each stage -> norm, SiLU, 3x3 -> [N, O, 8, 8]
    decoder  the same stages from last to first, each size doubled by repeating pixels before a 3x3 convolution
    block    x + conv(silu(norm(conv(silu(norm(x))))))

Inside, images lie with their channels last, for which convolutions on a processor are quickest. With `fold` above 1, blocks of fold x fold
pixels are one place with more channels for all of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components.norm_silu import NormSiLU
from gymlab.components.winograd import Convolution3x3

GROUPS = 32
"""Groups of a norm, as far as there are so many channels."""


@dataclass(frozen=True, slots=True)
class Stages:
    """What all networks of an experiment have in common."""

    multiples: Sequence[int]
    """Channels of each stage, as multiples of the network's own number."""
    halves: Sequence[int]
    """1 where a stage halves the picture, else 0."""
    fold: int = 1
    """Side of the blocks of pixels that are taken for one."""

    @property
    def stride(self) -> int:
        """Pixels for one place of the grid."""
        return int(self.fold * 2 ** sum(self.halves))


def norm(channels: int) -> NormSiLU:
    """Norm and SiLU before every convolution but the first."""
    return NormSiLU(min(GROUPS, channels), channels)


class ResidualBlock(nn.Module):
    """Two convolutions beside a short cut, which is a 1x1 convolution where the number of channels changes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first_norm, self.first = norm(inputs), Convolution3x3(inputs, outputs)
        self.second_norm, self.second = norm(outputs), Convolution3x3(outputs, outputs)
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, I, H, W] -> [N, O, H, W]."""
        hidden = self.second(self.second_norm(self.first(self.first_norm(x))))
        return hidden.add_(self.skip(x)) if not torch.is_grad_enabled() else hidden + self.skip(x)


class Doubled(nn.Module):
    """Every pixel becomes a 2x2 block, then a 3x3 convolution.

    A window of 3x3 over such blocks sees 2x2 different pixels: each place in a block is a 2x2 convolution of the small image
    with sums of the weights, 16 products where the large image takes 36.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = Convolution3x3(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, C, 2H, 2W]."""
        height, width = x.shape[2:]
        weight, bias = self.convolution.weight, self.convolution.bias
        padded = functional.pad(x, (1, 1, 1, 1))
        rows = []
        for row in range(2):
            places = []
            for column in range(2):
                window = padded[..., row : row + height + 1, column : column + width + 1]
                place = functional.conv2d(window, _of_place(weight, row, column), bias)
                places.append(place.permute(0, 2, 3, 1))  # [N, H, W, C]
            rows.append(torch.stack(places, dim=3))  # [N, H, W, 2, C]
        blocks = torch.stack(rows, dim=2)  # [N, H, 2, W, 2, C]
        return blocks.flatten(3, 4).flatten(1, 2).permute(0, 3, 1, 2)


def _of_place(weight: Tensor, row: int, column: int) -> Tensor:
    """The 2x2 kernel of one place in a block: the first of three weights by itself and the others together, or the other way round."""
    for dim, place in ((2, row), (3, column)):
        first, middle, last = weight.unbind(dim)
        weight = torch.stack([first, middle + last] if place == 0 else [first + middle, last], dim)
    return weight


class FrameEncoder(nn.Module):
    """Frames to a grid of features."""

    def __init__(self, inputs: int, outputs: int, channels: int, stages: Stages) -> None:
        super().__init__()
        self.fold = stages.fold
        layers: list[nn.Module] = [Convolution3x3(inputs * self.fold**2, channels)]
        width = channels
        for multiple, halve in zip(stages.multiples, stages.halves, strict=True):
            layers.append(ResidualBlock(width, multiple * channels))
            width = multiple * channels
            if halve:
                layers.append(nn.Conv2d(width, width, 2, stride=2))
        layers += [norm(width), Convolution3x3(width, outputs)]
        self.layers = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, frames: Tensor) -> Tensor:
        """[..., I, H, W] -> [..., O, h, w]."""
        flat = functional.pixel_unshuffle(frames.flatten(0, -4), self.fold)
        return self.layers(flat.contiguous(memory_format=torch.channels_last)).unflatten(0, frames.shape[:-3])


class FrameDecoder(nn.Module):
    """A grid of features to frames."""

    def __init__(self, inputs: int, outputs: int, channels: int, stages: Stages) -> None:
        super().__init__()
        self.fold = stages.fold
        layers: list[nn.Module] = []
        below = channels
        for multiple, halve in zip(stages.multiples, stages.halves, strict=True):
            width = multiple * channels
            layers.append(ResidualBlock(width, below))
            if halve:
                layers.append(Doubled(width))
            below = width
        layers.append(Convolution3x3(inputs, below))
        layers.reverse()
        layers += [norm(channels), Convolution3x3(channels, outputs * self.fold**2)]
        self.layers = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, features: Tensor) -> Tensor:
        """[..., I, h, w] -> [..., O, H, W]."""
        flat = features.flatten(0, -4).contiguous(memory_format=torch.channels_last)
        return functional.pixel_shuffle(self.layers(flat), self.fold).unflatten(0, features.shape[:-3])
