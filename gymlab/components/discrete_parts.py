"""Vectors that hold numbers, one-hots and bits: how DreamerV3 sees them, expects them and is judged by them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.components.symlog import symexp, symlog


@dataclass(frozen=True, slots=True)
class DiscreteParts:
    """Where in a vector the discrete parts of an observation are."""

    choices: tuple[tuple[int, int], ...] = ()
    """First position and length of each one-hot."""
    bits: tuple[int, ...] = ()
    """Positions of numbers that are 0 or 1."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.choices or self.bits)


class MixedVector(nn.Module):
    """Numbers by their symmetric logarithm and squared error, one-hots and bits as they are and by cross-entropy."""

    is_number: Tensor
    numbers: Tensor
    bits: Tensor

    def __init__(self, size: int, parts: DiscreteParts) -> None:
        super().__init__()
        is_number = torch.ones(size, dtype=torch.bool)
        is_number[list(parts.bits)] = False
        lengths = sorted({length for _, length in parts.choices})
        self.sizes = lengths
        for length in lengths:
            starts = torch.tensor([start for start, of in parts.choices if of == length])
            index = starts.unsqueeze(-1) + torch.arange(length)  # [choices of this length, length]
            is_number[index.flatten()] = False
            self.register_buffer(f"choices_{length}", index, persistent=False)
        self.register_buffer("is_number", is_number, persistent=False)
        self.register_buffer("numbers", is_number.nonzero().squeeze(-1), persistent=False)
        self.register_buffer("bits", torch.tensor(parts.bits, dtype=torch.long), persistent=False)

    def _choices(self) -> list[Tensor]:
        return [self.get_buffer(f"choices_{size}") for size in self.sizes]

    def seen(self, x: Tensor) -> Tensor:
        """[N, V] as the encoder takes it."""
        return torch.where(self.is_number, symlog(x), x)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """[N, V] of the decoder and of the observation -> [N], summed over all parts."""
        outputs = outputs.float()
        numbers = outputs[:, self.numbers] - symlog(target[:, self.numbers])
        total = numbers.square().sum(-1)
        for index in self._choices():
            total = total - (target[:, index] * functional.log_softmax(outputs[:, index], -1)).sum((-2, -1))
        if len(self.bits):
            logits, truth = outputs[:, self.bits], target[:, self.bits]
            total = total + functional.binary_cross_entropy_with_logits(logits, truth, reduction="none").sum(-1)
        return total

    def expected(self, outputs: Tensor) -> Tensor:
        """[N, V]: numbers in their own units, probabilities of choices and of ones."""
        expected = symexp(outputs)
        for index in self._choices():
            expected[:, index] = outputs[:, index].softmax(-1)
        expected[:, self.bits] = outputs[:, self.bits].sigmoid()
        return expected
