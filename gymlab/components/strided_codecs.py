"""Image encoder and decoder of Dreamer v1 and v2: strided convolutions without padding, for 64x64 images.

encoder  uint8 [B, C, 64, 64] -> 31x31xd -> 14x14x2d -> 6x6x4d -> 2x2x8d -> [B, 32d]
decoder  features -> 1x1x32d -> 5x5x4d -> 13x13x2d -> 30x30xd -> 64x64xC

d is 32 with ReLU in v1, 48 with ELU in v2. Images are centred, x/255 - 0.5, on the way in and as target.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from gymlab.components.keras_layers import keras_start
from gymlab.components.networks import ACTIVATIONS
from gymlab.errors import ConfigError

SIDE = 64
"""The only height and width that the decoder's kernels lead to."""
ENCODER_STAGES = (1, 2, 4, 8)
DECODER_STAGES = (4, 2, 1)
"""Channels of the layers as multiples of the depth."""
DECODER_KERNELS = (5, 5, 6, 6)


def centred(images: Tensor) -> Tensor:
    """uint8 [B, C, H, W] -> float in [-0.5, 0.5], with the channels last in memory: convolutions are quicker so."""
    return images.to(torch.get_default_dtype(), memory_format=torch.channels_last).div_(255).sub_(0.5)


class StridedImageEncoder(nn.Module):
    """Four 4x4 convolutions of stride 2, an activation after each."""

    def __init__(self, shape: tuple[int, ...], depth: int = 32, activation: str = "relu") -> None:
        super().__init__()
        check_strided_shape(shape)
        channels = [shape[0], *(depth * multiple for multiple in ENCODER_STAGES)]
        self.layers = nn.ModuleList(keras_start(nn.Conv2d(*sizes, 4, stride=2)) for sizes in pairwise(channels))
        self.activation = ACTIVATIONS[activation]()
        self.size = 2 * 2 * channels[-1]
        """Length of the code."""

    def forward(self, images: Tensor) -> Tensor:
        """uint8 [B, C, 64, 64] -> [B, size]."""
        x = centred(images)
        for layer in self.layers:
            x = self.activation(layer(x))
        return x.flatten(1)  # [B, 8d, 2, 2] -> [B, 32d]


class StridedImageDecoder(nn.Module):
    """A linear map to one pixel and four transposed convolutions of stride 2: the mean of a Normal of deviation 1."""

    def __init__(self, shape: tuple[int, ...], depth: int, deter: int, stoch: int, activation: str = "relu") -> None:
        super().__init__()
        check_strided_shape(shape)
        self.first = keras_start(nn.Linear(deter + stoch, 32 * depth))
        channels = [32 * depth, *(depth * multiple for multiple in DECODER_STAGES), shape[0]]
        self.layers = nn.ModuleList(
            keras_start(nn.ConvTranspose2d(*sizes, kernel, stride=2))
            for sizes, kernel in zip(pairwise(channels), DECODER_KERNELS, strict=True)
        )
        self.activation = ACTIVATIONS[activation]()

    def forward(self, deter: Tensor, stoch: Tensor) -> Tensor:
        """[B, deter], [B, stoch] -> the mean images, centred: [B, C, 64, 64]."""
        x = self.first(torch.cat([deter, stoch], -1))[:, :, None, None]  # [B, 32d, 1, 1]
        x = x.contiguous(memory_format=torch.channels_last)
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        mean: Tensor = last(x)
        return mean

    def loss(self, deter: Tensor, stoch: Tensor, images: Tensor) -> Tensor:
        """Half the squared error summed over pixels, the Normal's negative log-likelihood but for a constant: [B]."""
        return (self(deter, stoch).float() - centred(images)).square().sum(dim=(1, 2, 3)) / 2

    @staticmethod
    def pixels(mean: Tensor) -> Tensor:
        """What `forward` gives, as grey levels from 0 to 255."""
        return mean.add(0.5).clamp(0, 1) * 255


def check_strided_shape(shape: tuple[int, ...]) -> None:
    """Refuse images that these codecs cannot take."""
    if len(shape) != 3 or shape[1:] != (SIDE, SIDE):
        raise ConfigError(
            f"The image codecs of Dreamer v1 and v2 take images of {SIDE}x{SIDE} (channels, height, width), and these "
            f"observations are {tuple(shape)}: set resize_obs: [{SIDE}, {SIDE}]."
        )
