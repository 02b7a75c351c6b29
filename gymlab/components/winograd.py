"""3x3 convolutions whose weight gradients take half the products, by Winograd's method along rows of the picture.

    six inputs x and four gradients y of a row  ->  three weights' gradients:  w[k] = sum over j of x[j + k] y[j]
    as polynomials, at the places 0, 1, -1, 2, -2 and infinity:  w = A (B x * G y),  6 products instead of 12

Products are summed over all tiles of all rows before A, so that 18 matrix products of channels by channels remain. Processors with AVX2
alone are slow at these gradients (half of what they reach in the forward pass); all else is left to torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

TILE = 4
"""Gradients of a row that are taken together."""
FEWEST_CHANNELS = 64
"""Channels, in and out, from which this pays."""
AT_ONCE = 2**18
"""Numbers of a picture, or of several small ones, that are worked on together: about what a core's cache holds."""
TO_WEIGHTS = (
    (1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24, 0.0),
    (0.0, -1 / 6, 1 / 6, 1 / 12, -1 / 12, 0.0),
    (0.0, -1 / 6, -1 / 6, 1 / 6, 1 / 6, 1.0),
)
"""A, with the factors that G leaves out."""


class Convolution3x3(nn.Conv2d):
    """A 3x3 convolution that keeps the size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, I, H, W] -> [N, O, H, W]."""
        if not (torch.is_grad_enabled() and self._pays(x)):
            return super().forward(x)
        convolved: Tensor = _Convolution.apply(x, self.weight, self.bias)
        return convolved

    def _pays(self, x: Tensor) -> bool:
        fits = x.shape[3] % TILE == 0 and min(self.in_channels, self.out_channels) >= FEWEST_CHANNELS
        exact = x.dtype.itemsize >= 4 and not torch.is_autocast_enabled("cpu")
        return fits and exact and x.is_cpu and _is_slow()


def _is_slow() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return functional.conv2d(x, weight, bias, padding=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        # For the inputs, a convolution with the kernel turned round.
        dx = functional.conv2d(gradient, weight.flip(2, 3).transpose(0, 1), padding=1) if of_x else None
        d_weight = weight_gradient(x, gradient) if of_weight else None
        return dx, d_weight, gradient.sum((0, 2, 3)) if of_bias else None


def weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """Of a 3x3 convolution: inputs [N, I, H, W], gradients of its outputs [N, O, H, W] -> [O, I, 3, 3]."""
    (_, inputs, height, width), outputs = x.shape, gradient.shape[1]
    together = max(1, AT_ONCE // (height * width * max(inputs, outputs)))
    pictures = (tensor.permute(0, 2, 3, 1).split(together) for tensor in (x, gradient))
    products = x.new_zeros(3, 6, inputs, outputs)  # by row of the kernel and place
    for x_part, y_part in zip(*pictures, strict=True):
        x_places, y_places = _inputs_at_places(x_part), _gradients_at_places(y_part)
        for row in range(3):
            products[row].baddbmm_(x_places[:, row : row + height].flatten(1, 2).transpose(1, 2), y_places)
    return torch.einsum("kp,rpio->oirk", x.new_tensor(TO_WEIGHTS), products)


def _inputs_at_places(x: Tensor) -> Tensor:
    """B x of each tile: [N, H, W, C] -> [6, H + 2, N W / 4, C], with a row of zeros around."""
    count, height, width, channels = x.shape
    padded = x.new_zeros(height + 2, count, width + TILE, channels)
    padded[1:-1, :, 1 : width + 1] = x.transpose(0, 1)
    x0, x1, x2, x3, x4, x5 = (padded[:, :, start : start + width : TILE] for start in range(6))
    places = x.new_empty(6, *x0.shape)
    even, odd = x4 - x2, x3 - x1
    torch.add(even, x0 - x2, alpha=4, out=places[0])
    torch.add(even, odd, alpha=2, out=places[3])
    torch.sub(even, odd, alpha=2, out=places[4])
    torch.sub(x5 - x3, odd, alpha=4, out=places[5])
    torch.sub(x4, x2, alpha=4, out=even)
    torch.sub(x3, x1, alpha=4, out=odd)
    torch.add(even, odd, out=places[1])
    torch.sub(even, odd, out=places[2])
    return places.flatten(2, 3)


def _gradients_at_places(y: Tensor) -> Tensor:
    """G y of each tile but for the factors in A: [N, H, W, C] -> [6, H N W / 4, C]."""
    y0, y1, y2, y3 = (y[:, :, start::TILE].transpose(0, 1) for start in range(TILE))
    places = y.new_empty(6, *y0.shape)
    places[0], places[5] = y0, y3
    for place, factor in ((1, 1), (3, 2)):
        even, odd = torch.add(y0, y2, alpha=factor**2), torch.add(y1, y3, alpha=factor**2)
        torch.add(even, odd, alpha=factor, out=places[place])
        torch.sub(even, odd, alpha=factor, out=places[place + 1])
    return places.flatten(1, 3)
