"""Estimates with honest intervals: bootstrap for returns, Wilson for success rates, IQM and kin over runs and tasks.

The estimators are those of Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
_CHUNK_ELEMENTS = 4_000_000
"""Bootstrap draws held in memory at once."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean (or other statistic) with the 95% interval around it."""

    mean: float
    low: float | None
    """None, as is `high`, where a single value says nothing about the spread."""
    high: float | None
    n: int
    """Values it was taken over; of two groups, those of the smaller one."""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{format_number(self.mean)} (n={self.n}, no interval)"
        return f"{format_number(self.mean)} [{format_number(self.low)}, {format_number(self.high)}]"


def format_number(value: float) -> str:
    """A number for people: one decimal for hundreds, three for fractions."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def reward_text(value: float) -> str:
    """A reward or a return of one episode: whole numbers without a fraction."""
    return f"{value:,.0f}" if value == round(value) else format_number(value)


def mean_ci95(values: npt.ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean. Equal values have zero width; a single one has no interval."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    if sample.size == 0:
        raise ValueError("an interval needs at least one value")
    if sample.size == 1:
        return None
    if np.ptp(sample) == 0:
        return float(sample[0]), float(sample[0])
    generator = np.random.default_rng(seed)
    chunk = max(1, _CHUNK_ELEMENTS // sample.size)
    means = [
        sample[generator.integers(sample.size, size=(min(chunk, resamples - start), sample.size))].mean(axis=1)
        for start in range(0, resamples, chunk)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)


def estimate(values: npt.ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Mean with its bootstrap interval and the number of values."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    low, high = mean_ci95(sample, seed=seed, resamples=resamples) or (None, None)
    return Interval(float(sample.mean()), low, high, sample.size)


def iqm(scores: npt.ArrayLike) -> float:
    """Interquartile mean: the mean of the middle half of all scores, runs and tasks together."""
    flat = np.asarray(scores, dtype=np.float64).reshape(1, -1)
    return float(_iqm(flat[:, :, None])[0])


def aggregate(
    scores: npt.ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES, indices: np.ndarray | None = None
) -> dict[str, Interval]:
    """IQM, median, mean and optimality gap of normalised scores [runs, tasks], with stratified bootstrap intervals.

    Runs are drawn anew within each task; median and mean are of per-task means, so that with one task they are the same;
    `run_median` is of all runs. `indices` [resamples, runs, tasks] are drawn from the seed unless given. One run a task
    has no intervals: drawn anew it is always itself.
    """
    matrix = _matrix(scores)
    if indices is None:
        indices = _draws(np.random.default_rng(seed), matrix, resamples)
    drawn = matrix[indices, np.arange(matrix.shape[1])]  # [resamples, runs, tasks]
    results = {}
    for name, statistic in _AGGREGATES.items():
        low, high = np.percentile(statistic(drawn), [2.5, 97.5]).tolist() if len(matrix) > 1 else (None, None)
        results[name] = Interval(float(statistic(matrix[None])[0]), low, high, len(matrix))
    return results


def probability_of_improvement(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    indices: tuple[np.ndarray, np.ndarray] | None = None,
) -> Interval:
    """How likely a run of `first` scores higher than one of `second`, ties counted half, as a mean over tasks.

    Both are matrices [runs, tasks] over the same tasks; their runs are drawn anew each on its own. `indices`
    [resamples, runs, tasks] of the two are drawn from the seed unless given. With one run on a side there is no interval.
    """
    one, other = _matrix(first), _matrix(second)
    if one.shape[1] != other.shape[1]:
        raise ValueError(f"scores over {one.shape[1]} tasks cannot be held against scores over {other.shape[1]}")
    mean, smaller = float(_improvement(one[None], other[None])[0]), min(len(one), len(other))
    if smaller == 1:
        return Interval(mean, None, None, smaller)
    if indices is None:
        generator = np.random.default_rng(seed)
        indices = _draws(generator, one, resamples), _draws(generator, other, resamples)
    tasks = np.arange(one.shape[1])
    chunk = max(1, _CHUNK_ELEMENTS // (one.shape[0] * other.size))
    drawn = [
        _improvement(one[indices[0][start : start + chunk], tasks], other[indices[1][start : start + chunk], tasks])
        for start in range(0, len(indices[0]), chunk)
    ]
    low, high = np.percentile(np.concatenate(drawn), [2.5, 97.5])
    return Interval(mean, float(low), float(high), smaller)


def wilson(successes: int, n: int) -> tuple[float, float]:
    """95% Wilson interval of a success rate; right at 0 and at n too, where the normal approximation has zero width."""
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"{successes} successes of {n} is no success rate")
    z = 1.959963984540054
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def achievement_score(percentages: Sequence[float]) -> float:
    """Crafter's score: the geometric mean of success rates in percent, each raised by 1 so that a 0 does not end it all."""
    if not percentages or not all(0 <= percentage <= 100 for percentage in percentages):
        raise ValueError(f"success rates are percentages from 0 to 100, not {list(percentages)}")
    return math.exp(sum(math.log1p(percentage) for percentage in percentages) / len(percentages)) - 1.0


def binned_curves(
    steps: Sequence[npt.ArrayLike],
    values: Sequence[npt.ArrayLike],
    *,
    bins: int = 60,
    seed: int = 0,
    statistic: str = "mean",
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Learning curves of several seeds on one axis: bin ends in env steps, mean (or `iqm`), low and high of the 95% interval.

    Within a bin each run counts with its mean; a run without a value in a bin keeps its last one (an early-stopped run
    its final one), so that the mean never leaps because a run ended. Bins before a run's first value leave it out; where
    a single run is left, low and high are NaN.
    """
    limit = max(float(np.max(run_steps)) for run_steps in steps)
    edges = np.linspace(0.0, limit, bins + 1)
    grid = np.full((len(steps), bins), np.nan)
    for run, (run_steps, run_values) in enumerate(zip(steps, values, strict=True)):
        place = np.clip(np.searchsorted(edges, np.asarray(run_steps, dtype=np.float64), side="left") - 1, 0, bins - 1)
        sums = np.bincount(place, weights=np.asarray(run_values, dtype=np.float64), minlength=bins)
        counts = np.bincount(place, minlength=bins)
        filled = np.flatnonzero(counts)
        held = filled[np.searchsorted(filled, np.arange(filled[0], bins), side="right") - 1]
        grid[run, filled[0] :] = sums[held] / counts[held]
    used = np.flatnonzero(~np.isnan(grid).all(axis=0))
    mean, low, high = np.empty((3, used.size))
    for index, column in enumerate(used):
        present = grid[~np.isnan(grid[:, column]), column]
        found = (
            estimate(present, seed=seed) if statistic == "mean" else aggregate(present[:, None], seed=seed)[statistic]
        )
        mean[index] = found.mean
        low[index], high[index] = (np.nan, np.nan) if found.low is None else (found.low, found.high)
    return edges[used + 1], mean, low, high


def _matrix(scores: npt.ArrayLike) -> np.ndarray:
    matrix = np.asarray(scores, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"scores are a matrix of runs x tasks, not of shape {list(matrix.shape)}")
    return matrix


def _draws(generator: np.random.Generator, matrix: np.ndarray, resamples: int) -> np.ndarray:
    """[resamples, runs, tasks]: runs drawn with replacement within each task."""
    return generator.integers(len(matrix), size=(resamples, *matrix.shape))


def _improvement(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[resamples, runs, tasks] of both -> [resamples]: the share of pairs that `first` wins."""
    pairs = np.sign(first[:, :, None] - second[:, None])  # [resamples, runs, runs, tasks]
    return 0.5 + pairs.mean(axis=(1, 2, 3)) / 2


def _iqm(scores: np.ndarray) -> np.ndarray:
    """[resamples, runs, tasks] -> [resamples]: 25% cut from each end of the flattened scores."""
    flat = np.sort(scores.reshape(scores.shape[0], -1), axis=1)
    cut = flat.shape[1] // 4
    return flat[:, cut : flat.shape[1] - cut].mean(axis=1)


_AGGREGATES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "iqm": _iqm,
    "median": lambda scores: np.median(scores.mean(axis=1), axis=1),
    "run_median": lambda scores: np.median(scores.reshape(len(scores), -1), axis=1),
    "mean": lambda scores: scores.mean(axis=(1, 2)),
    "optimality_gap": lambda scores: 1.0 - np.minimum(scores, 1.0).mean(axis=(1, 2)),
}
