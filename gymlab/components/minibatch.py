"""Minibatches of on-policy data: the columns that a policy gradient needs, cut and gathered without allocation."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

STATISTICS = ("loss/policy", "loss/value", "opt/policy/entropy", "opt/ppo/approx_kl", "opt/ppo/clip_fraction")
"""What every gradient reports about its minibatch, in this order."""
APPROX_KL = STATISTICS.index("opt/ppo/approx_kl")


@dataclass(slots=True)
class Minibatch:
    """Rows of a rollout: numpy arrays for the written-out gradient, tensors for autograd."""

    observations: Any
    """[B, ...] as the network takes them."""
    actions: Any
    log_probs: Any
    """[B] log pi(action) of the policy that the ratio is taken against."""
    advantages: Any
    """[B] what multiplies the ratio."""
    returns: Any
    """[B] targets of the value function."""
    values: Any
    """[B] values at collection, for value clipping."""
    action_masks: Any = None

    def to_torch(self, device: torch.device) -> Minibatch:
        """The same rows as tensors on `device`."""
        arrays = (getattr(self, column.name) for column in fields(self))
        return Minibatch(*(None if array is None else torch.from_numpy(array).to(device) for array in arrays))


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Weights and ranges of the loss, as they stand in this update."""

    clip_range: Any
    clip_range_vf: Any
    """None: values are not clipped."""
    vf_coef: Any
    ent_coef: Any


class Gatherer:
    """Copies chosen rows of long columns into memory that is made once for the largest minibatch."""

    def __init__(self) -> None:
        self._memory: dict[str, np.ndarray] = {}

    def take(self, columns: Minibatch, rows: np.ndarray) -> Minibatch:
        """The minibatch of `rows`; its arrays are written over by the next call."""
        return Minibatch(
            *(self._gather(column.name, getattr(columns, column.name), rows) for column in fields(columns))
        )

    def _gather(self, name: str, source: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
        if source is None:
            return None
        memory = self._memory.get(name)
        if memory is None or len(memory) < len(rows):
            memory = self._memory[name] = np.empty((len(rows), *source.shape[1:]), source.dtype)
        # Mode "clip" lets numpy write into `out` directly; rows are known to be in range.
        return np.take(source, rows, axis=0, out=memory[: len(rows)], mode="clip")


def cut(rows: np.ndarray, batch_size: int, total: int) -> list[np.ndarray]:
    """`rows` in ceil(total / batch_size) parts of nearly equal length, so that no minibatch of one is left over.

    `total` counts rows before invalid ones were dropped: every process of a distributed run then takes the same number of steps.
    """
    return [part for part in np.array_split(rows, math.ceil(total / batch_size)) if len(part)]
