"""Milliseconds of a 3x3 convolution and of its weights' gradient, by torch and by gymlab's kernel. Runs in worker processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gymlab.components.compiled import kernels
from gymlab.components.winograd import convolve, weight_gradient
from gymlab.errors import GymlabError


@torch.no_grad()
def time_layer(job: dict[str, Any]) -> dict[str, float]:
    """Medians over turns that follow one another, and of the turns' ratios."""
    if kernels("winograd") is None:
        raise GymlabError("There is no kernel here; `gymlab doctor` says why.")
    torch.manual_seed(job["seed"])
    count, channels, side = job["layer"]
    x, y = (_last(torch.randn(count, channels, side, side)) for _ in range(2))
    weight, bias = _last(torch.randn(channels, channels, 3, 3)), torch.randn(channels)
    ways = {
        "forward": (partial(functional.conv2d, x, weight, bias, padding=1), partial(convolve, x, weight, bias)),
        "weights": (partial(torch_gradient, x, weight, y), partial(weight_gradient, x, y)),
    }
    found = {}
    for name, (by_torch, by_kernel) in ways.items():
        turns = take_turns(by_torch, by_kernel, job["seconds"] / len(ways))
        found[f"{name}/torch"] = 1e3 * statistics.median(one for one, _ in turns)
        found[f"{name}/kernel"] = 1e3 * statistics.median(other for _, other in turns)
        found[f"{name}/ratio"] = statistics.median(one / other for one, other in turns)
    return found


def torch_gradient(x: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    """What torch's backward pass of a convolution does for the weights alone."""
    pair, wanted = [1, 1], [False, True, False]
    shapes = (None, pair, pair, pair, False, [0, 0], 1)
    found: Tensor = torch.ops.aten.convolution_backward(gradient, x, weight, *shapes, wanted)[1]
    return found


def take_turns(one: Callable[[], Any], other: Callable[[], Any], seconds: float) -> list[tuple[float, float]]:
    """Seconds of both, by turns, for so long; the first turn warms up."""
    ends, turns = time.perf_counter() + seconds, [(_seconds(one), _seconds(other))]
    while len(turns) < 2 or time.perf_counter() < ends:
        turns.append((_seconds(one), _seconds(other)))
    return turns[1:]


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
