"""Returns and advantages over [T, N] arrays: time first, environments second.

      obs[t] --action[t]--> reward[t], terminated[t], truncated[t], next_values[t] = V(the true next observation)

`next_values[t]` is V(obs[t+1]) inside an episode, V(final observation) where one was truncated, V(the observation after
the last row) on the last row, and anything at all where one terminated. `ended = terminated | truncated` cuts the
recursion, so nothing leaks from one episode to another and dead rows of next-step autoreset (always behind an ended
row) reach no other row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def discounted_scan(rewards: np.ndarray, decay: np.ndarray) -> np.ndarray:
    """x[t] = rewards[t] + decay[t] * x[t+1] backwards over axis 0, with x = 0 after the last row.

    Doubling instead of a loop over time: after k passes x[t] holds the terms t .. t + 2**k - 1, so that 128 rows take
    7 passes over whole arrays.
    """
    total = rewards.copy()
    reach = decay.copy()
    stride = 1
    while stride < len(total):
        total[:-stride] += reach[:-stride] * total[stride:]
        reach[:-stride] *= reach[stride:]
        stride *= 2
    return total


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    gamma: float,
    lam: float,
) -> np.ndarray:
    """Generalised advantage estimates [T, N] (Schulman et al. 2016, eq. 16); they + values are the value targets."""
    _check_shapes(rewards, values, next_values, terminated, truncated)
    delta = rewards + _discount(gamma, terminated) * next_values - values
    return discounted_scan(delta, _discount(gamma * lam, terminated | truncated))


def reward_to_go(
    rewards: np.ndarray, next_values: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, gamma: float
) -> np.ndarray:
    """Discounted return from each row to its episode's end [T, N].

    An episode cut short, by truncation or by the end of the rollout, goes on with `next_values` at the cut: give zeros
    to count rewards alone.
    """
    _check_shapes(rewards, next_values, terminated, truncated)
    cut = truncated & ~terminated
    cut[-1] = ~terminated[-1]
    bootstrapped = rewards + np.where(cut, next_values, 0) * rewards.dtype.type(gamma)
    return discounted_scan(bootstrapped, _discount(gamma, terminated | truncated))


def episode_return(returns_to_go: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """Return of the whole episode (from its first row in the rollout) at each of its rows [T, N]."""
    _check_shapes(returns_to_go, ended)
    return np.take_along_axis(returns_to_go, _first_rows(ended), axis=0)


def episode_steps(ended: np.ndarray) -> np.ndarray:
    """How many steps of its episode (from its first row in the rollout) lie before each row [T, N]."""
    return np.arange(len(ended))[:, None] - _first_rows(ended)


def _first_rows(ended: np.ndarray) -> np.ndarray:
    """The row at which each row's episode begins [T, N]."""
    is_first = np.ones_like(ended)
    is_first[1:] = ended[:-1]
    rows = np.arange(len(ended))[:, None]
    return np.maximum.accumulate(np.where(is_first, rows, 0), axis=0)


def standardize(x: np.ndarray) -> np.ndarray:
    """`x` in place with mean 0 and (unbiased) standard deviation 1; a single number stays as it is."""
    standardize_parts(x.reshape(-1), [0, x.size])
    return x


def standardize_parts(x: np.ndarray, bounds: Sequence[int]) -> np.ndarray:
    """Each part x[bounds[i]:bounds[i+1]] in place with mean 0 and (unbiased) deviation 1; no part may be empty.

    A part of a single number has no deviation and stays as it is.
    """
    starts, counts = np.array(bounds[:-1], np.intp), np.diff(bounds)
    several = counts > 1
    means = np.where(several, np.add.reduceat(x, starts) / counts, 0).astype(x.dtype)
    x -= np.repeat(means, counts)
    squares = np.add.reduceat(x * x, starts)
    deviations = np.where(several, np.sqrt(squares / np.maximum(counts - 1, 1)) + 1e-8, 1).astype(x.dtype)
    x /= np.repeat(deviations, counts)
    return x


def explained_variance(predictions: np.ndarray, targets: np.ndarray) -> float:
    """1 - Var(targets - predictions) / Var(targets): 1 is perfect, 0 as good as the mean (and where targets are constant)."""
    variance = float(np.var(targets))
    return 0.0 if variance == 0 else 1.0 - float(np.var(targets - predictions)) / variance


def _discount(factor: float, stop: np.ndarray) -> np.ndarray:
    """`factor` where the episode goes on and 0 where it stops, in float32."""
    return np.where(stop, np.float32(0), np.float32(factor))


def _check_shapes(first: np.ndarray, *others: np.ndarray) -> None:
    """A (T, N) beside a (T, N, 1) would broadcast in silence."""
    if first.ndim != 2 or any(other.shape != first.shape for other in others):
        raise ValueError(f"Returns take [T, N] arrays of one shape, got {[array.shape for array in (first, *others)]}.")
