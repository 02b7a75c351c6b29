"""Dead units: hidden units that give one output whatever is observed, and through which no gradient flows any more.

    tanh          saturated: above 0.99 for every observation, or below -0.99 for every one
    relu          0 for every observation
    elu           saturated: below -0.99 for every observation
    gelu, silu    within 0.01 of 0 for every observation

A unit of a convolution is a channel: it is dead when that holds at every place of every image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymlab.components.analytic import StackedMLP
from gymlab.components.autograd import TorchPolicy
from gymlab.components.networks import ACTIVATIONS

ROWS = 256
"""Most observations that are looked at."""
EVERY_EPOCHS = 10
"""Units die slowly; looked at in each update they would cost up to a tenth of a short one."""
METRIC = "opt/dead_units"

Extremes = tuple[Any, Any]
"""Lowest and highest output of each unit of a layer."""

DEAD: dict[str, Callable[[Any, Any], Any]] = {
    "tanh": lambda low, high: (low > 0.99) | (high < -0.99),
    "relu": lambda low, high: high <= 0,
    "elu": lambda low, high: high < -0.99,
    "gelu": lambda low, high: (low > -0.01) & (high < 0.01),
    "silu": lambda low, high: (low > -0.01) & (high < 0.01),
}
"""Which units are dead, from the lowest and highest output of each."""
NAMES = {module: name for name, module in ACTIVATIONS.items()}


class DeadUnits:
    """The share of dead units in a policy's network, in numpy or torch, whichever it acts with."""

    def __init__(self, policy: StackedMLP | TorchPolicy, network: nn.Module, *, critic: bool = True) -> None:
        self.policy = policy
        self.critic = critic
        """False leaves out a critic that nothing is learned by."""
        self._activations = [
            module
            for name, module in network.named_modules()
            if type(module) in NAMES and (critic or not name.startswith("critic_"))
        ]

    def metrics(self, observations: np.ndarray, rows: np.ndarray, epoch: int) -> dict[str, float]:
        """The metric in the first and each tenth epoch, on rows spread evenly over `rows`; else, and without hidden units, nothing."""
        if epoch % EVERY_EPOCHS:
            return {}
        share = self.share(observations[rows[:: -(-len(rows) // ROWS)]])
        return {} if share is None else {METRIC: share}

    def share(self, observations: np.ndarray) -> float | None:
        """Dead units over all hidden units, judged on encoded observations [B, ...]; None without hidden units."""
        if isinstance(self.policy, StackedMLP):
            counts = self._in_numpy(self.policy, observations)
        else:
            counts = self._in_torch(self.policy, observations)
        units = sum(size for _, size in counts)
        return sum(dead for dead, _ in counts) / units if units else None

    def _in_numpy(self, policy: StackedMLP, x: np.ndarray) -> list[tuple[int, int]]:
        is_dead = DEAD["relu" if policy.relu else "tanh"]
        counts = []
        for hidden in policy.hidden(x):
            judged = hidden if self.critic else hidden[:1]
            dead = is_dead(judged.min(axis=1), judged.max(axis=1))
            counts.append((int(dead.sum()), dead.size))
        return counts

    def _in_torch(self, policy: TorchPolicy, x: np.ndarray) -> list[tuple[int, int]]:
        found: list[Tensor] = []

        def look(module: nn.Module, inputs: Any, outputs: Tensor) -> None:
            outputs = outputs.flatten(2).movedim(1, -1).flatten(0, -2) if outputs.ndim > 2 else outputs  # [..., units]
            found.append(DEAD[NAMES[type(module)]](outputs.amin(0), outputs.amax(0)))

        hooks = [module.register_forward_hook(look) for module in self._activations]
        try:
            policy(x)
        finally:
            for hook in hooks:
                hook.remove()
        counts = torch.stack([dead.sum() for dead in found]).tolist() if found else []
        return list(zip(counts, (dead.numel() for dead in found), strict=True))
