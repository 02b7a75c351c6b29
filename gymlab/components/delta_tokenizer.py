"""The tokenizer of Δ-IRIS: a few words for what a frame shows that the frame before it and the action do not tell.

encoder  x[t-1], a[t-1], x[t]  -> 8x8 features -> K patches -> K words   (Δ-tokens of x[t])
decoder  x[t-1], a[t-1], words -> x[t]

L = 0.1 mean |d| + mean d^2 + 0.01 mean over frames of max d^2 + 0.02 mean (z - word)^2      d = x[t] - its reconstruction
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gymlab.components.delta_iris_config import DeltaIRISConfig
from gymlab.components.frame_codecs import FrameDecoder, FrameEncoder
from gymlab.components.vector_quantizer import Quantized, VectorQuantizer

ABSOLUTE, WORST_PIXEL, COMMITMENT = 0.1, 0.01, 0.02
"""Weights of the losses beside the squared error's 1."""


def init_transformer_weights(module: nn.Module) -> None:
    """Linear layers and embeddings from N(0, 0.02), biases 0; convolutions and norms keep their own."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


class DeltaTokenizer(nn.Module):
    """Frames [N, C, S, S] in 0..1, actions [N], tokens [N, K]."""

    def __init__(self, config: DeltaIRISConfig, shape: tuple[int, ...], num_actions: int) -> None:
        super().__init__()
        channels, self.image_size, _ = shape
        stages = config.stages
        self.grid = self.image_size // stages.stride
        self.side = math.isqrt(config.tokens)
        """Tokens lie in a square of this side."""
        self.patch = self.grid // self.side
        self.tokens = config.tokens
        self.features = config.token_features
        self.action_plane = nn.Embedding(num_actions, self.image_size**2)
        self.action_grid = nn.Embedding(num_actions, config.action_channels * self.grid**2)
        self.quantizer = VectorQuantizer(
            config.codebook_size, config.codebook_dim, self.features * self.patch**2, config.revival_updates
        )
        self.encoder = FrameEncoder(2 * channels + 1, self.features, config.tokenizer_channels, stages)
        seen = config.tokenizer_frame_features + config.action_channels + self.features
        self.decoder = FrameDecoder(seen, channels, config.tokenizer_channels, stages)
        self.frames = FrameEncoder(channels, config.tokenizer_frame_features, config.tokenizer_frame_channels, stages)
        self.apply(init_transformer_weights)

    def encode(self, before: Tensor, action: Tensor, after: Tensor) -> Quantized:
        """What is new in `after`, in words."""
        plane = self.action_plane(action).view(-1, 1, self.image_size, self.image_size)
        return self.quantizer(self.to_patches(self.encoder(torch.cat([before, plane, after], dim=1))))

    def decode(self, before: Tensor, action: Tensor, vectors: Tensor) -> Tensor:
        """The next frame, of vectors [N, K, D] behind the words; not held to 0..1."""
        act = self.action_grid(action).view(len(action), -1, self.grid, self.grid)
        return self.decoder(torch.cat([self.frames(before), act, self.to_grid(vectors)], dim=1))

    @torch.no_grad()
    def next_frame(self, before: Tensor, action: Tensor, tokens: Tensor) -> Tensor:
        """The same of tokens [N, K], as a picture: in steps of 1/255 from 0 to 1."""
        frame = self.decode(before, action, self.quantizer.embed(tokens)).float()
        return frame.clamp_(0, 1).mul_(255).round_().div_(255)

    def to_patches(self, features: Tensor) -> Tensor:
        """[N, F, S, S] -> [N, K, patch * patch * F]; tokens row by row, pixels of a patch row by row, channels last."""
        x = features.unflatten(3, (self.side, self.patch)).unflatten(2, (self.side, self.patch))
        return x.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)

    def to_grid(self, patches: Tensor) -> Tensor:
        """The way back."""
        x = patches.unflatten(1, (self.side, self.side)).unflatten(3, (self.patch, self.patch, self.features))
        return x.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)

    def losses(self, before: Tensor, action: Tensor, after: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Losses by name with their weights, and how good the frames are."""
        words = self.encode(before, action, after)
        delta = after - self.decode(before, action, words.vectors).float()
        squares = delta.square().flatten(1)  # [N, pixels]
        losses = {
            "absolute": ABSOLUTE * delta.abs().mean(),
            "squared": squares.mean(),
            "worst_pixel": WORST_PIXEL * squares.amax(1).mean(),
            "commitment": COMMITMENT * words.commitment,
        }
        psnr = -10 * torch.log10(squares.detach().mean(1).clamp(min=1e-10)).mean()
        metrics = {"psnr": psnr, **{f"codebook_{name}": value for name, value in self.quantizer.metrics().items()}}
        return losses, metrics
