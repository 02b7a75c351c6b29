"""All parameters of a module in one flat vector, of which the module's own parameters are views.

    parameter  [ trunk ................. | actor_head .... | critic_head ]   one nn.Parameter, what the optimizer steps
    gradient   [ the same places ........................................ ]   its .grad; each p.grad is a view of it

One vector makes the optimizer one kernel, the gradient norm one dot product, and numpy views of the weights free: nothing
is ever copied between the network that learns and the one that acts. `load_state_dict` and optimizers write in place and
keep the views; a module is moved to its device before it is flattened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

PARTS = ("trunk", "actor_head", "critic_head")
"""Parts whose gradient norms are reported; a module with other names is all trunk."""


class FlatParameters:
    """Flat storage for the trainable parameters of `module`, in the order of its `parameter_order()` where it has one."""

    def __init__(self, module: nn.Module) -> None:
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        order: Sequence[str] = getattr(module, "parameter_order", lambda: list(named))()
        order = sorted(order, key=lambda name: PARTS.index(part_of(name)))
        if sorted(order) != sorted(named):
            raise ValueError("parameter_order() must name every trainable parameter once.")
        flat = torch.cat([named[name].detach().reshape(-1).float() for name in order])
        self.parameter = nn.Parameter(flat)
        self.parameter.grad = torch.zeros_like(flat)
        self.places: dict[str, slice] = {}
        self.shapes = {name: tuple(named[name].shape) for name in order}
        start = 0
        for name in order:
            end = start + named[name].numel()
            self.places[name] = slice(start, end)
            named[name].data = flat[start:end].view(self.shapes[name])
            named[name].grad = self.parameter.grad[start:end].view(self.shapes[name])
            start = end

    @property
    def gradient(self) -> torch.Tensor:
        """The flat gradient."""
        assert self.parameter.grad is not None
        return self.parameter.grad

    def parts(self) -> dict[str, slice]:
        """Where each part that has parameters lies in the vector."""
        found: dict[str, slice] = {}
        for name, place in self.places.items():
            part = part_of(name)
            found[part] = slice(found[part].start if part in found else place.start, place.stop)
        return found

    def numpy_view(self, *names: str, gradient: bool = False) -> np.ndarray:
        """Neighbouring parameters of one shape as one numpy array [len(names), ...] on the same memory (CPU only)."""
        shape = self.shapes[names[0]]
        places = [self.places[name] for name in names]
        neighbours = all(left.stop == right.start for left, right in pairwise(places))
        if not neighbours or any(self.shapes[name] != shape for name in names):
            raise ValueError(f"Parameters {names} do not lie side by side with one shape.")
        source = self.gradient if gradient else self.parameter.detach()
        return source.numpy()[places[0].start : places[-1].stop].reshape(len(names), *shape)


def part_of(name: str) -> str:
    """Which part of an actor-critic the parameter `name` belongs to."""
    if name == "log_std" or name.startswith("actor_head."):
        return "actor_head"
    return "critic_head" if name.startswith("critic_head.") else "trunk"


def count_parameters(module: nn.Module) -> int:
    """How many numbers the module learns."""
    return sum(math.prod(p.shape) for p in module.parameters() if p.requires_grad)
