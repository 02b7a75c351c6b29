"""3x3 convolutions by Winograd's method: a quarter of the products, forwards and backwards (winograd.c).

Torch's convolutions run at the speed of matrix products at best, and on processors with AVX2 the gradients of their weights at half of it.
Whether this is quicker is measured once on a machine. Where the kernel does not fit (other devices and precisions, few tiles of 4x4 pixels,
no C compiler), torch computes as ever.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gymlab.components.compiled import first_answer, kernels
from gymlab.components.turns import seconds_by_turns

TILE = 4
"""Side of the squares of outputs that are computed together."""
PLACES = 36
"""Products of matrices that it takes."""
FEWEST_TILES = 48
"""Squares from which it pays to transform the weights."""
FEWEST_A_THREAD = 24
"""Squares from which it pays to use one more thread."""
TURNS = 8
"""Measurements by which torch or the kernel is chosen."""


class Convolution3x3(nn.Conv2d):
    """A 3x3 convolution that keeps the size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, I, H, W] -> [N, O, H, W]."""
        return convolution_3x3(x, self.weight, self.bias)


def convolution_3x3(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """[N, I, H, W], [O, I, 3, 3], [O] -> [N, O, H, W], with gradients."""
    if not _pays(x, weight):
        return functional.conv2d(x, weight, bias, padding=1)
    convolved: Tensor = _Convolution.apply(x, weight, bias)
    return convolved


def _pays(x: Tensor, weight: Tensor) -> bool:
    (_, inputs, height, width), outputs = x.shape, len(weight)
    large = not (height % TILE or width % TILE) and _tiles(x) >= FEWEST_TILES
    exact = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    eager = x.is_cpu and not torch.compiler.is_compiling()
    if not (large and exact and eager and is_wanted()):
        return False
    multiple = _functions().channels()
    return bool(inputs % multiple == outputs % multiple == 0)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return convolve(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        # For the inputs, a convolution with the kernel turned round.
        dx = convolve(gradient, weight.flip(2, 3).transpose(0, 1)) if of_x else None
        d_weight = weight_gradient(x, gradient) if of_weight else None
        return dx, d_weight, gradient.sum((0, 2, 3)) if of_bias else None


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[N, I, H, W], [O, I, 3, 3], [O] -> [N, O, H, W]."""
    (count, inputs, height, width), outputs = x.shape, len(weight)
    y = torch.empty(count, outputs, height, width, memory_format=torch.channels_last)
    x, kernel = _channels_last(x), weight.permute(2, 3, 1, 0).contiguous()
    at_places = x.new_empty(PLACES, inputs, outputs)
    _functions().transform_weights(_address(kernel), inputs, outputs, _address(at_places))
    bias = None if bias is None else bias.contiguous()
    tensors = _address(x), _address(at_places), None if bias is None else _address(bias), _address(y)
    _share(lambda _, *tiles: _functions().convolve(*tensors, *tiles), x, outputs)
    return y


def weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """Inputs [N, I, H, W] and gradients of the outputs [N, O, H, W] -> [O, I, 3, 3]."""
    inputs, outputs = x.shape[1], gradient.shape[1]
    d_weight = x.new_empty(3, 3, inputs, outputs)
    x, gradient = _channels_last(x), _channels_last(gradient)
    tensors, sums = (_address(x), _address(gradient)), x.new_zeros(_threads(x), PLACES, inputs, outputs)
    _share(lambda part, *tiles: _functions().add_products(*tensors, _address(sums[part]), *tiles), x, outputs)
    total = sums.sum(0) if len(sums) > 1 else sums[0]
    _functions().transform_sums(_address(total), inputs, outputs, _address(d_weight))
    return d_weight.permute(3, 2, 0, 1)


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("height", "width", "inputs", "outputs")]


def _share(work: Callable[..., None], x: Tensor, outputs: int) -> None:
    """The tiles of pictures in equal parts, one for each thread: work(part, room, first tile, last, shape)."""
    _, inputs, height, width = x.shape
    threads, tiles, shape = _threads(x), _tiles(x), _Shape(height, width, inputs, outputs)
    room = x.new_empty(threads, _functions().room(shape))

    def work_on(part: int) -> None:
        work(part, _address(room[part]), tiles * part // threads, tiles * (part + 1) // threads, shape)

    others = [_pool(threads - 1).submit(work_on, part) for part in range(1, threads)]
    work_on(0)
    for other in others:
        other.result()


def _threads(x: Tensor) -> int:
    """Torch's, as far as there is work for them."""
    return max(1, min(torch.get_num_threads(), _tiles(x) // FEWEST_A_THREAD))


def _tiles(x: Tensor) -> int:
    count, _, height, width = x.shape
    return count * height * width // TILE**2


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="winograd")


if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


@functools.cache
def _functions() -> Any:
    """Those of winograd.c, or None."""
    functions = kernels("winograd")
    if functions is not None:
        functions.room.restype = ctypes.c_long
    return functions


@functools.cache
def is_wanted() -> bool:
    """Whether there is a kernel, and this machine is quicker with it."""
    return _functions() is not None and first_answer(f"{Path(_functions()._name).stem}-is-quicker", _is_quicker)


@torch.no_grad()
def _is_quicker() -> bool:
    """Both ways of one layer, by turns."""
    x, weight = _channels_last(torch.ones(8, 64, 32, 32)), _channels_last(torch.ones(64, 64, 3, 3))
    ways = (partial(functional.conv2d, x, weight, padding=1), partial(convolve, x, weight))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torchs, own = seconds_by_turns(ways, TURNS)
    torch.set_num_threads(threads)
    return own < torchs


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())
