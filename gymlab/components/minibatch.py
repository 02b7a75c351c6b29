"""Minibatches of on-policy data: the columns that a policy gradient needs, shuffled and cut without allocation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymlab.components.returns import standardize_parts
from gymlab.errors import NonFiniteError

STATISTICS = ("loss/policy", "loss/value", "opt/policy/entropy", "opt/ppo/approx_kl", "opt/ppo/clip_fraction")
"""What PPO's gradients report about their minibatch, in this order."""
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
    """None: the loss has no ratio to clip."""
    clip_range_vf: Any
    """None: values are not clipped."""
    vf_coef: Any
    ent_coef: Any


class Gatherer:
    """Shuffled minibatches on memory that is made once.

    The small columns are gathered once an epoch and cut into views; observations, which may be images, a minibatch at a time.
    """

    def __init__(self) -> None:
        self._memory: dict[str, np.ndarray] = {}

    def minibatches(
        self, columns: Minibatch, order: np.ndarray, bounds: list[int], *, standardize_each: bool
    ) -> Iterator[Minibatch]:
        """`columns` in the given order, cut at `bounds`; each minibatch is written over by the next."""
        names = [column.name for column in fields(columns)][1:]
        small = [self._gather(name, getattr(columns, name), order) for name in names]
        if standardize_each:
            standardize_parts(small[names.index("advantages")], bounds)
        for start, stop in pairwise(bounds):
            observations = self._gather("observations", columns.observations, order[start:stop])
            yield Minibatch(observations, *(None if array is None else array[start:stop] for array in small))

    def _gather(self, name: str, source: Any, rows: np.ndarray) -> Any:
        if source is None:
            return None
        memory = self._memory.get(name)
        if memory is None or len(memory) < len(rows):
            memory = self._memory[name] = np.empty((len(rows), *source.shape[1:]), source.dtype)
        # Mode "clip" lets numpy write into `out` directly; rows are known to be in range.
        return np.take(source, rows, axis=0, out=memory[: len(rows)], mode="clip")


def cut(rows: int, batch_size: int, total: int) -> list[int]:
    """Bounds of ceil(total / batch_size) parts of `rows` of nearly equal length: no minibatch of one is left over.

    `total` counts rows before invalid ones were dropped: every process of a distributed run takes as many steps.
    """
    parts = min(math.ceil(total / batch_size), rows)
    return [rows * part // parts for part in range(parts + 1)] if rows else [0]


class UpdateLog:
    """Statistics and gradient norms of the minibatches of one update, read once at its end."""

    def __init__(self, part_names: list[str], statistic_names: tuple[str, ...] = STATISTICS) -> None:
        self.statistics: list[Any] = []
        self.norms: list[Any] = []
        self._statistic_names = statistic_names
        self._norm_names = tuple(f"opt/grads/norm/{part}" for part in part_names)

    def means(self, where: str) -> dict[str, float]:
        """Mean of each column; a number that is not finite is an error that says which, in what minibatch of `where`."""
        found: dict[str, float] = {}
        broken: list[tuple[int, str, float, np.ndarray]] = []
        for names, rows in ((self._statistic_names, self.statistics), (self._norm_names, self.norms)):
            table = _table(rows, len(names))
            broken += [
                (row, names[column], table[row, column], table)
                for row, column in np.argwhere(~np.isfinite(table))[:1].tolist()
            ]
            found |= zip(names, table.mean(axis=0).tolist() if len(table) else [0.0] * len(names), strict=True)
        if broken:
            # A loss comes before the gradient of its minibatch: the first of the earliest is where it began.
            row, name, value, table = min(broken, key=lambda entry: entry[0])
            raise NonFiniteError(
                f"{name} is {value} in minibatch {row + 1} of {where}. "
                f"A lower policy_lr or max_grad_norm, normalize_obs or normalize_reward usually helps; "
                f"look at the environment's rewards and observations too.",
                tensor=name,
                data={"minibatch": row, "statistics": table},
            )
        return found


def _table(rows: list[Any], width: int) -> np.ndarray:
    """Rows of floats, arrays or tensors as one array [len(rows), width]."""
    if rows and isinstance(rows[0], Tensor):
        return torch.stack(rows).cpu().numpy()
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)
