"""V of World Models (Ha & Schmidhuber 2018): a picture as a short code, by a convolutional variational autoencoder.

    encoder  [B, C, 64, 64] -> 31x31x32 -> 14x14x64 -> 6x6x128 -> 2x2x256 = 1024 -> mean [B, Z], log variance [B, Z]
    decoder  [B, Z] -> 1024 -> 1x1x1024 -> 5x5x128 -> 13x13x64 -> 30x30x32 -> 64x64xC in [0, 1]

    L = sum over pixels (x - y)^2 + max(KL(code || N(0, 1)), floor), each for one picture, then the mean over the batch

`Vision` is V whatever is observed: pictures go through the autoencoder, a vector is its own code.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gymlab.components.observation_parts import VECTOR
from gymlab.components.plain import Identity
from gymlab.errors import ConfigError

SIDE = 64
WIDTH = 1024
"""Numbers between the convolutions and the code, on both sides."""
FREE_NATS = 0.5
"""KL of each dimension of the code that is not made smaller; the floor is this times Z."""


class FromPoint(nn.ConvTranspose2d):
    """A transposed convolution of a picture of one pixel. As a product with the weights it takes an eighth of the time."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """[B, inputs, 1, 1] -> [B, outputs, side, side]."""
        assert self.bias is not None
        return (x.flatten(1) @ self.weight.flatten(1)).unflatten(1, self.weight.shape[1:]) + self.bias[:, None, None]


class ConvVAE(nn.Module):
    """The autoencoder, with the sizes of the paper's appendix."""

    def __init__(self, size: int = 32, channels: int = 3) -> None:
        super().__init__()
        self.size = size
        """Length Z of the code."""
        self.floor = FREE_NATS * size
        self.encoder = nn.Sequential(
            *(nn.Conv2d(channels, 32, 4, 2), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
            *(nn.Conv2d(64, 128, 4, 2), nn.ReLU(), nn.Conv2d(128, 256, 4, 2), nn.ReLU(), nn.Flatten()),
        )
        self.mean = nn.Linear(WIDTH, size)
        self.log_variance = nn.Linear(WIDTH, size)
        self.to_image = nn.Linear(size, WIDTH)
        self.decoder = nn.Sequential(
            *(FromPoint(WIDTH, 128, 5), nn.ReLU(), nn.ConvTranspose2d(128, 64, 5, 2), nn.ReLU()),
            *(nn.ConvTranspose2d(64, 32, 6, 2), nn.ReLU(), nn.ConvTranspose2d(32, channels, 6, 2), nn.Sigmoid()),
        )

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images [B, C, 64, 64] in [0, 1] -> mean and log variance of the code, [B, Z] each."""
        hidden = self.encoder(images)
        return self.mean(hidden), self.log_variance(hidden)

    def decode(self, code: Tensor) -> Tensor:
        """[B, Z] -> images [B, C, 64, 64] in [0, 1]."""
        return self.decoder(self.to_image(code)[..., None, None])

    def losses(self, images: Tensor) -> dict[str, Tensor]:
        """Squared error and floored KL of images in [0, 1], and the KL as it is, which is no loss but a metric."""
        mean, log_variance = self.encode(images)
        code = draw_code(mean, log_variance, torch.randn_like(mean))
        error = (self.decode(code) - images).square().flatten(1).sum(1)  # [B]
        kl = kl_to_standard_normal(mean, log_variance)  # [B]
        # The floor holds for each picture by itself: one with much KL does not pay for one with little.
        return {"reconstruction": error.mean(), "kl": kl.clamp(min=self.floor).mean(), "raw_kl": kl.mean()}


def kl_to_standard_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, e^log_variance) || N(0, 1)) summed over the last dimension."""
    return 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(-1)


def draw_code(mean: Tensor, log_variance: Tensor, noise: Tensor) -> Tensor:
    """A sample of the code: mean + e^(log_variance / 2) noise."""
    return mean + (0.5 * log_variance).exp() * noise


class Vision(nn.Module):
    """V for one kind of observation: the autoencoder for pictures of 64 x 64, the identity for a vector.

    A code is [..., 2 Z] (mean, log variance) for pictures and [..., Z] for vectors, where nothing is left to chance: that is what replay keeps.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], size: int) -> None:
        super().__init__()
        if len(shapes) != 1:
            raise ConfigError(
                f"world_models sees one picture or one vector, and these observations have {', '.join(shapes)}. "
                "A wrapper (env_wrappers) can leave the others out."
            )
        ((self.key, self.shape),) = shapes.items()
        self.is_picture = self.key != VECTOR
        if self.is_picture and self.shape[1:] != (SIDE, SIDE):
            raise ConfigError(
                f"world_models looks at pictures of {SIDE} x {SIDE}, and these observations are {self.shape}: set resize_obs: [{SIDE}, {SIDE}]."
            )
        self.net = ConvVAE(size, self.shape[0]) if self.is_picture else Identity(self.shape[0])
        self.size: int = self.net.size
        """Length Z of what M and C are given."""
        self.code_size = 2 * self.size if self.is_picture else self.size

    def forward(self, observation: Tensor) -> Tensor:
        """Observations [B, ...] as replay keeps them (pictures in bytes) -> codes [B, code_size]."""
        if isinstance(self.net, ConvVAE):
            return torch.cat(self.net.encode(observation.float() / 255), -1)
        return self.net(observation)

    def draw(self, code: Tensor, noise: Tensor | None) -> Tensor:
        """z [..., Z] of codes: a sample with noise [..., Z], the mean without."""
        if not self.is_picture:
            return code
        mean, log_variance = code.chunk(2, -1)
        return mean if noise is None else draw_code(mean, log_variance, noise)

    def decode(self, z: Tensor) -> Tensor:
        """[B, Z] -> observations [B, ...] in their own units (pictures: 0..255)."""
        return self.net.decode(z) * 255 if self.is_picture else z
