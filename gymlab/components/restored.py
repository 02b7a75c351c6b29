"""Tensors that a checkpoint gives back: what does not fit is an error here, and none in the middle of a product of matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def restored_like(own: Tensor, saved: Any, name: str) -> Tensor:
    """A saved tensor on the device of the one that it replaces, if it has its shape and holds finite numbers alone."""
    found = torch.as_tensor(saved).to(own.device)
    if found.shape != own.shape or found.is_floating_point() != own.is_floating_point():
        raise ValueError(f"{name} is {tuple(found.shape)} {found.dtype}, not {tuple(own.shape)} {own.dtype}")
    if not found.isfinite().all():
        raise ValueError(f"{name} has values that are NaN or infinite")
    return found
