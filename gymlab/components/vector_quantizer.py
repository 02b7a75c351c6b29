"""Vectors to words of a codebook, the nearest by angle; the codebook follows what is assigned to it and learns by no gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components.full_precision import full_precision

CODEBOOK_RATE = 0.01
"""Share of the mean of its vectors that a word takes over at each update."""
USAGE_RATE = 0.02
"""Share of a batch in the running frequency of a word."""
DEAD_SHARE = 0.1
"""A word is dead when it is used less often than this share of an even use."""
ALWAYS_REVIVED_BELOW = 1.0
"""Bits of entropy of the words' use, below which dead ones are revived however old the codebook is."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """What became of a batch of vectors."""

    tokens: Tensor
    """[N, K] numbers of words."""
    vectors: Tensor
    """[N, K, D] the words, with the gradient of the vectors that they stand for; in the input's dimension."""
    commitment: Tensor
    """Mean squared distance of vectors and their words, which draws the vectors to the words."""


class VectorQuantizer(nn.Module):
    """Project to few dimensions, scale to length 1, take the nearest word, project back."""

    codebook: Tensor
    frequencies: Tensor
    updates: Tensor

    def __init__(self, size: int, word_size: int, input_size: int, revival_updates: int) -> None:
        super().__init__()
        self.into, self.out_of = nn.Linear(input_size, word_size), nn.Linear(word_size, input_size)
        self.revival_updates = revival_updates
        self.even_bits = math.log2(size)
        # So short that a hundredth of a vector outweighs it: the first update moves used codes onto the data, then all have length 1.
        self.register_buffer("codebook", torch.empty(size, word_size).uniform_(-1 / size, 1 / size))
        self.register_buffer("frequencies", torch.full((size,), 1 / size))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Quantized:
        """[N, K, D] -> words; while training, the codebook moves towards what was assigned to it."""
        z = functional.normalize(self.into(x).float(), dim=-1)
        tokens = self._nearest(z.detach())
        words = self.codebook[tokens]
        if self.training:
            self._follow(z.detach().flatten(0, 1), tokens.flatten())
        commitment = (z - words).square().mean()
        return Quantized(tokens, self.out_of(z + (words - z).detach()), commitment)

    @full_precision
    def _nearest(self, z: Tensor) -> Tensor:
        """[N, K, W] -> [N, K] the same words in a dream, which computes in float32, as in training."""
        return (z @ self.codebook.t()).argmax(-1)

    def embed(self, tokens: Tensor) -> Tensor:
        """[N, K] -> [N, K, D], as the decoder sees them."""
        return self.out_of(self.codebook[tokens])

    @property
    def entropy(self) -> Tensor:
        """Of the words' use, in bits."""
        return -torch.xlogy(self.frequencies, self.frequencies).sum() / math.log(2)

    def metrics(self) -> dict[str, Tensor]:
        """How much of the codebook is in use."""
        entropy, dead = self.entropy, self.frequencies < DEAD_SHARE / len(self.frequencies)
        return {"entropy": entropy, "perplexity": torch.exp2(entropy), "dead_share": dead.float().mean()}

    @torch.no_grad()
    def _follow(self, z: Tensor, tokens: Tensor) -> None:
        """Move every word that was used towards the mean of its vectors, give all of them length 1, and revive dead ones."""
        counts = torch.zeros_like(self.frequencies).index_add_(0, tokens, torch.ones_like(tokens, dtype=torch.float32))
        sums = torch.zeros_like(self.codebook).index_add_(0, tokens, z)
        # The mean of an unused code is 0: it gets shorter, and its direction stays.
        self.codebook.lerp_(functional.normalize(sums, dim=-1), CODEBOOK_RATE)
        self.codebook.copy_(functional.normalize(self.codebook, dim=-1))
        self.frequencies.lerp_(counts / len(tokens), USAGE_RATE)
        self._revive(z)
        self.updates += 1

    def _revive(self, z: Tensor) -> None:
        """Put vectors of the batch in the place of dead words, as long as the codebook is young or has collapsed.

        Nothing is read back from the device: where nobody is to be revived, nobody is marked dead.
        """
        size, entropy = len(self.frequencies), self.entropy
        allowed = (entropy < ALWAYS_REVIVED_BELOW) | (self.updates < self.revival_updates)
        dead = (self.frequencies < DEAD_SHARE / size) & allowed & (entropy < self.even_bits - 2)
        rank = dead.cumsum(0) - 1
        dead &= rank < len(z)
        heirs = z[torch.randperm(len(z), device=z.device)[rank.clamp(0, len(z) - 1)]]
        self.codebook.copy_(torch.where(dead.unsqueeze(-1), heirs, self.codebook))
        self.frequencies.copy_(torch.where(dead, torch.full_like(self.frequencies, 1 / size), self.frequencies))
