"""Rates at which minibatches come out of the rollout buffer, with nothing learned from them. Runs in worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gymlab.bench.parts import mean_seconds
from gymlab.buffers.rollout import Rollout, RolloutBuffer
from gymlab.components.minibatch import Gatherer, Minibatch, cut


def time_batches(
    n_envs: int, n_steps: int, batch_size: int, shape: Sequence[int], dtype: str, seed: int, seconds: float
) -> dict[str, Any]:
    """Shuffled minibatches a second of a rollout with observations of `shape`, as tensors, the way an update takes them."""
    generator = np.random.default_rng(seed)
    rollout = made_up_rollout(n_envs, n_steps, shape, dtype, generator)
    buffer, gatherer = RolloutBuffer(), Gatherer()
    bounds = cut(rollout.size, batch_size, rollout.size)

    def epoch() -> None:
        buffer.add(rollout)
        (newest,) = buffer.sample()
        order = generator.permutation(newest.valid_rows())
        for batch in gatherer.minibatches(columns_of(newest), order, bounds, standardize_each=True):
            batch.to_torch(torch.device("cpu"))

    spent = mean_seconds(epoch, seconds).wall
    return {
        "batches_per_second": (len(bounds) - 1) / spent,
        "rows_per_second": rollout.size / spent,
        "megabytes_per_second": columns_bytes(rollout) / spent / 1e6,
    }


def made_up_rollout(
    n_envs: int, n_steps: int, shape: Sequence[int], dtype: str, generator: np.random.Generator
) -> Rollout:
    """A rollout of random numbers: only its sizes matter here."""
    rows = (n_steps, n_envs)
    flags = np.zeros(rows, np.bool_)
    numbers = {name: generator.standard_normal(rows, dtype=np.float32) for name in ("log_probs", "values", "rewards")}
    return Rollout(
        observations=generator.integers(0, 255, (*rows, *shape)).astype(dtype),
        actions=generator.integers(0, 4, rows),
        bootstrap_values=np.zeros(n_envs, np.float32),
        terminated=flags,
        truncated=flags,
        bootstrap_observations=np.zeros((n_envs, *shape), dtype),
        bootstrap_rows=np.arange(n_envs),
        **numbers,
    )


def columns_of(rollout: Rollout) -> Minibatch:
    """The columns that a policy gradient takes; rewards stand in for advantages and returns."""
    small = (rollout.log_probs, rollout.rewards, rollout.rewards, rollout.values)
    flat = (column.reshape(-1) for column in small)
    return Minibatch(rollout.flat(rollout.observations), rollout.flat(rollout.actions), *flat)


def columns_bytes(rollout: Rollout) -> int:
    """What one epoch gathers."""
    return rollout.observations.nbytes + rollout.actions.nbytes + 4 * rollout.rewards.nbytes
