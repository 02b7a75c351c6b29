"""What is computed in float32 whatever precision surrounds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

F = TypeVar("F", bound=Callable[..., Any])


def full_precision(function: F) -> F:
    """Compute in float32 under autocast too: sums over bins up to 5e8 and searches for the nearest lose in halves what no later step gives back."""

    @wraps(function)
    def computed(*given: Any) -> Any:
        device = next(_tensors(given)).device.type
        if not torch.is_autocast_enabled(device):
            return function(*given)
        with torch.autocast(device, enabled=False):
            return function(*map(_widened, given))

    return computed  # type: ignore[return-value]


def _tensors(given: tuple[Any, ...]) -> Iterator[Tensor]:
    return (value for value in given if isinstance(value, Tensor))


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(map(_widened, value))
    return value
