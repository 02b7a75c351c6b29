"""Estimates with honest intervals: Student's t for means, Wilson for success rates, rliable's bootstrap over runs and tasks.

The estimators are those of Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice"). Their percentile
bootstrap is too narrow for few seeds (5 seeds of one task: it holds the true mean in 84% of cases, not in 95%), so that
each statistic that has an interval of its own gets that one; the bootstrap is left for the IQM and the median over several
tasks. Student's t takes the mean for nearly normal: of few values of a skewed distribution it covers less than 95%. No interval
can know of what the sample has not shown: an agent that fails once in 100 episodes has played 37% of its evaluations of
100 without a failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
FEWEST = 5
"""Values from which there is an interval: fewer say too little about the spread, and show their range instead."""
_NORMAL = 1.959963984540054
_CHUNK_ELEMENTS = 4_000_000
"""Bootstrap draws held in memory at once."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean (or other statistic) with the 95% interval around it; the range of the values where they are too few for one."""

    mean: float
    low: float | None
    high: float | None
    n: int
    """Values it was taken over; of two groups, those of the smaller one; 0 where that is not known."""
    smallest: float | None = None
    largest: float | None = None

    @classmethod
    def of_result(cls, result: Mapping[str, Any]) -> Interval:
        """As a summary tells it: mean, ci95, n, min and max, each of which but the mean may be missing."""
        n = result.get("n") or 0
        low, high = result.get("ci95") or (None, None)
        if 0 < n < FEWEST:  # A run of before gave one to any number.
            low, high = None, None
        return cls(result["mean"], low, high, n, result.get("min"), result.get("max"))

    @property
    def ci95(self) -> list[float] | None:
        """Both ends; None where there are too few values for an interval."""
        return None if self.low is None or self.high is None else [self.low, self.high]

    @property
    def words(self) -> str:
        """`mean and 95% interval`, or what there is instead of one."""
        if self.n == 1:
            return "a single value"
        if self.ci95:
            return "mean of equal values" if self.low == self.high else "mean and 95% interval"
        return "mean" if self.smallest is None else "mean and range"

    def __str__(self) -> str:
        mean = format_number(self.mean)
        if self.n == 1:
            return f"{mean} (n=1, no interval)"
        low, high = self.ci95 or (self.smallest, self.largest)
        if low is None or high is None:
            return f"{mean} (n={self.n}, no interval)" if self.n else mean
        if low == high:
            return f"{mean} (all {self.n} equal)" if self.n else mean
        ends = f"{format_number(low)}, {format_number(high)}"
        return f"{mean} [{ends}]" if self.ci95 else f"{mean} (range {ends.replace(', ', ' to ')})"


def format_number(value: float) -> str:
    """A number for people: one decimal for hundreds, three for fractions."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def reward_text(value: float) -> str:
    """A reward or a return of one episode: whole numbers without a fraction."""
    return f"{value:,.0f}" if value == round(value) else format_number(value)


def estimate(values: npt.ArrayLike, *, episodes: bool = False) -> Interval:
    """Mean with Student's t interval; with the range below `FEWEST` values. Equal values have zero width.

    `episodes`: each value is the return of one episode. Where those are all 0 or 1, and not all 0, they are a success rate,
    and get Wilson's interval: 100 of 100 successes are [0.963, 1.000]. Returns of 0 alone may be of any task.
    """
    sample = _sample(values)
    low, high = None, None
    if episodes and sample.size >= FEWEST and sample.any() and np.isin(sample, (0.0, 1.0)).all():
        low, high = wilson(int(sample.sum()), sample.size)
    elif sample.size >= FEWEST:
        low, high = _bounds(mean_bounds, sample)
    # A mean of equal values would differ from them in the last digit.
    mean = sample[0] if np.ptp(sample) == 0 else sample.mean()
    return Interval(float(mean), low, high, sample.size, float(sample.min()), float(sample.max()))


def estimates(scores: npt.ArrayLike) -> dict[str, Interval]:
    """IQM, mean and median of scores [runs, tasks].

    Of one task: each with its own interval over runs. Of several: rliable's aggregates, the mean with Student's t. None has
    an interval below `FEWEST` runs, nor where only the middle ones of the runs are equal: there is a spread, which they do not show.
    """
    matrix = _matrix(scores)
    runs, tasks = matrix.shape
    if tasks > 1:
        found = aggregate(matrix)
        mean_low, mean_high = task_mean_bounds(matrix) if runs >= FEWEST else (None, None)
        found["mean"] = replace(found["mean"], low=mean_low, high=mean_high)
        return {name: _where_known(found[name], matrix) for name in ("iqm", "mean", "median")}
    sample = matrix[:, 0]

    def with_bounds(value: float, bounds: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Interval:
        low, high = _bounds(bounds, sample) if runs >= FEWEST else (None, None)
        found = Interval(value, low, high, runs, float(sample.min()), float(sample.max()))
        return _where_known(found, matrix)

    return {
        "iqm": with_bounds(iqm(sample), iqm_bounds),
        "mean": estimate(sample),
        "median": with_bounds(float(np.median(sample)), median_bounds),
    }


def mean_bounds(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95% interval of the mean along the last axis: Student's t."""
    count = values.shape[-1]
    half = t_quantile(count - 1) * values.std(axis=-1, ddof=1) / math.sqrt(count)
    centre = values.mean(axis=-1)
    return centre - half, centre + half


def task_mean_bounds(scores: np.ndarray) -> tuple[float, float]:
    """95% interval of the mean of per-task means of scores [runs, tasks]: Student's t of their joint deviation.

    Degrees of freedom of Welch and Satterthwaite: from those of one task, where a single one varies, to those of all together.
    """
    runs, tasks = scores.shape
    squares = scores.var(axis=0, ddof=1) / runs
    centre = float(scores.mean(axis=0).mean())
    if not squares.any():
        return centre, centre
    freedom = float((runs - 1) * squares.sum() ** 2 / np.square(squares).sum())
    half = t_quantile(freedom) * math.sqrt(squares.sum()) / tasks
    return centre - half, centre + half


def iqm_bounds(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95% interval of the interquartile mean along the last axis: Student's t with the winsorised deviation.

    Tukey and McLaughlin 1963: what is cut counts as the outermost value that is kept.
    """
    ordered = np.sort(values, axis=-1)
    count = values.shape[-1]
    cut = count // 4
    kept = ordered[..., cut : count - cut]
    held = np.clip(ordered, kept[..., :1], kept[..., -1:])
    number = kept.shape[-1]
    squares = np.square(held - held.mean(axis=-1, keepdims=True)).sum(axis=-1)
    half = t_quantile(number - 1) * np.sqrt(squares / (number * (number - 1)))
    centre = kept.mean(axis=-1)
    return centre - half, centre + half


def median_bounds(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95% interval of the median along the last axis: between two values of the sample, whatever the distribution.

    From the k-th smallest to the k-th largest holds the median with probability 1 - 2 P(Binomial(n, 1/2) < k); between the
    two k around 95% is interpolated (Hettmansperger and Sheather 1986). Of 5 values it is the range, which holds 93.75%.
    """
    ordered = np.sort(values, axis=-1)
    count = values.shape[-1]
    place, inner = _median_places(count)
    low = (1 - inner) * ordered[..., place] + inner * ordered[..., place + 1]
    high = (1 - inner) * ordered[..., count - 1 - place] + inner * ordered[..., count - 2 - place]
    return low, high


@cache
def _median_places(count: int) -> tuple[int, float]:
    """Index from which the median's interval goes inwards, and how far on to the next."""
    holds = [1 - 2 * sum(math.comb(count, j) for j in range(k)) / 2**count for k in range(1, count // 2 + 1)]
    k = max((k for k, share in enumerate(holds, start=1) if share >= 0.95), default=1)
    if k == len(holds) or holds[k - 1] < 0.95:
        return k - 1, 0.0
    step = (holds[k - 1] - 0.95) / (holds[k - 1] - holds[k])
    return k - 1, (count - k) * step / (k + (count - 2 * k) * step)


@cache
def t_quantile(freedom: float) -> float:
    """Student's t at 97.5%: exact for 1, 2 and 3 degrees of freedom, then its expansion about the normal (Abramowitz and Stegun 26.7.5)."""
    if freedom <= 3:
        return {1.0: 12.706205, 2.0: 4.302653, 3.0: 3.182446}[freedom]
    z = _NORMAL
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * freedom**4)
    )


def iqm(scores: npt.ArrayLike) -> float:
    """Interquartile mean: the mean of the middle half of all scores, runs and tasks together."""
    flat = np.asarray(scores, dtype=np.float64).reshape(1, -1)
    return float(_iqm(flat[:, :, None])[0])


def aggregate(
    scores: npt.ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES, indices: np.ndarray | None = None
) -> dict[str, Interval]:
    """IQM, median, mean and optimality gap of normalised scores [runs, tasks], with stratified bootstrap intervals.

    Runs are drawn anew within each task; median and mean are of per-task means, so that with one task they are the same.
    `indices` [resamples, runs, tasks] are drawn from the seed unless given. One run a task has no intervals: drawn anew it
    is always itself.
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


def improvement(first: npt.ArrayLike, second: npt.ArrayLike) -> Interval:
    """The probability of improvement with the interval that fits: below `FEWEST` runs of either none.

    It is Newcombe's (2006, method 5), which has a width even where all runs of one beat all of the other; the bootstrap
    would say 1.000 [1.000, 1.000] then.
    """
    found = probability_of_improvement(first, second, resamples=1)
    if found.n < FEWEST:
        return replace(found, low=None, high=None)
    (runs, tasks), others = _matrix(first).shape, len(_matrix(second))
    low, high = newcombe(found.mean, runs, others, tasks)
    return replace(found, low=low, high=high)


def newcombe(probability: float, first: int, second: int, tasks: int = 1) -> tuple[float, float]:
    """95% interval of P(X > Y) measured over all pairs of `first` and `second` values: where it is 1.96 of its deviations away.

    As a mean over `tasks` its variance is taken for that of equal ones: where they differ, the interval is too wide, not too narrow.
    """
    mean_size, pairs = (first + second) / 2 - 1, first * second * tasks

    def deviation(p: float) -> float:
        return math.sqrt(p * (1 - p) * (1 + mean_size * ((1 - p) / (2 - p) + p / (1 + p))) / pairs)

    def end(outermost: float) -> float:
        near, far = probability, outermost
        for _ in range(60):
            middle = (near + far) / 2
            if abs(middle - probability) > _NORMAL * deviation(middle):
                far = middle
            else:
                near = middle
        return near

    return end(0.0), end(1.0)


def wilson(successes: int, n: int) -> tuple[float, float]:
    """95% Wilson interval of a success rate; right at 0 and at n too, where the normal approximation has zero width."""
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"{successes} successes of {n} is no success rate")
    z = _NORMAL
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def achievement_score(percentages: Sequence[float]) -> float:
    """Crafter's score: the geometric mean of success rates in percent, each raised by 1 so that a 0 does not end it all."""
    if not percentages or not all(0 <= percentage <= 100 for percentage in percentages):
        raise ValueError(f"success rates are percentages from 0 to 100, not {list(percentages)}")
    return math.exp(sum(math.log1p(percentage) for percentage in percentages) / len(percentages)) - 1.0


@dataclass(frozen=True, slots=True)
class Band:
    """Learning curves of several seeds as one: bin ends, mean (or IQM), and what lies around it."""

    steps: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """NaN with `low` where an interval is shown and fewer than `FEWEST` runs have a value yet."""
    words: str
    """What `low` and `high` are: `95% interval`, or the `range` of fewer than `FEWEST` runs."""


def binned_curves(
    steps: Sequence[npt.ArrayLike], values: Sequence[npt.ArrayLike], *, bins: int = 60, statistic: str = "mean"
) -> Band:
    """Learning curves of several seeds on one axis: mean (or `iqm`) with the 95% interval, or the range of few.

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
    few = len(steps) < FEWEST
    middle, low, high = np.full((3, used.size), np.nan)
    for index, column in enumerate(used):
        present = grid[~np.isnan(grid[:, column]), column]
        middle[index] = present.mean() if statistic == "mean" else iqm(present)
        if few:
            low[index], high[index] = present.min(), present.max()
        elif present.size >= FEWEST:
            low[index], high[index] = _bounds(mean_bounds if statistic == "mean" else iqm_bounds, present)
    return Band(edges[used + 1], middle, low, high, "range" if few else "95% interval")


def _sample(values: npt.ArrayLike) -> np.ndarray:
    sample = np.asarray(values, dtype=np.float64).ravel()
    if sample.size == 0:
        raise ValueError("an estimate needs at least one value")
    return sample


def _bounds(bounds: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], sample: np.ndarray) -> tuple[float, float]:
    """Of one sample; equal values get exactly that value."""
    if np.ptp(sample) == 0:
        return float(sample[0]), float(sample[0])
    low, high = bounds(sample)
    return float(low), float(high)


def _where_known(found: Interval, scores: np.ndarray) -> Interval:
    """Without bounds below `FEWEST` runs, and where bounds of no width stand for runs that differ."""
    low, high = found.low, found.high
    if low is None or high is None:
        return found
    too_narrow = math.isclose(low, high, rel_tol=1e-12) and bool(np.ptp(scores, axis=0).any())
    return replace(found, low=None, high=None) if found.n < FEWEST or too_narrow else found


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
    "mean": lambda scores: scores.mean(axis=(1, 2)),
    "optimality_gap": lambda scores: 1.0 - np.minimum(scores, 1.0).mean(axis=(1, 2)),
}
