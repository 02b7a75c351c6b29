"""Runs held against each other: groups of seeds with IQM, mean and median, and how likely one group beats another.

Within one environment scores are as they are. Over several environments they mean nothing together unless they are
normalised, 0 for chance and 1 for the return that counts as solved.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from gymlab.errors import GymlabError
from gymlab.metrics.statistics import Interval, estimates, improvement
from gymlab.metrics.terminal import clean

ALL = "all, normalised"
"""Stands for the environment in what is aggregated over several."""
MEASURES = ("iqm", "mean", "median")
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a text that begins with one of these for a formula."""


@dataclass(frozen=True)
class ComparedRun:
    """One run with its score."""

    id: str
    group: str
    environment: str
    seed: int | None
    score: float
    curve: tuple[np.ndarray, np.ndarray]
    """Positions on the x-axis, and values."""
    env_steps: int
    seconds: float
    note: str | None = None
    """What must be said of the score, such as that episodes did not end."""


@dataclass(frozen=True)
class GroupResult:
    """The runs of a group in one environment, or normalised over all of them."""

    environment: str
    group: str
    runs: tuple[ComparedRun, ...]
    iqm: Interval
    mean: Interval
    median: Interval
    """Of the runs; over several environments, of the environments' means."""

    @property
    def env_steps(self) -> float:
        """Environment steps that a run took, as a mean."""
        return fmean(run.env_steps for run in self.runs)

    @property
    def seconds(self) -> float:
        """Time that a run trained, as a mean."""
        return fmean(run.seconds for run in self.runs)


@dataclass(frozen=True)
class Improvement:
    """How likely a run of the first group scores higher than one of the second."""

    environment: str
    first: str
    second: str
    probability: Interval


@dataclass(frozen=True)
class Comparison:
    """Everything that is told about the groups."""

    groups: tuple[str, ...]
    environments: tuple[str, ...]
    results: tuple[GroupResult, ...]
    improvements: tuple[Improvement, ...]
    normalised: tuple[GroupResult, ...] = ()
    """Over all environments, where that was asked for."""


def compare(runs: Sequence[ComparedRun], scales: Mapping[str, tuple[float, float]] | None = None) -> Comparison:
    """Aggregate by environment and group, in the order of first appearance; with `scales` (the returns that are 0 and 1,
    by environment) also over all environments.
    """
    groups = tuple(dict.fromkeys(run.group for run in runs))
    environments = tuple(dict.fromkeys(run.environment for run in runs))
    results, improvements = [], []
    for environment in environments:
        found = {
            group: tuple(run for run in runs if (run.environment, run.group) == (environment, group))
            for group in groups
        }
        scores = {group: np.array([[run.score] for run in members]) for group, members in found.items() if members}
        results += [_result(environment, group, found[group], matrix) for group, matrix in scores.items()]
        improvements += _improvement(environment, scores)
    if scales is None:
        return Comparison(groups, environments, tuple(results), tuple(improvements))
    matrices = {group: _matrix(runs, group, environments, scales) for group in groups}
    normalised = tuple(
        _result(ALL, group, tuple(run for run in runs if run.group == group), matrix)
        for group, matrix in matrices.items()
    )
    return Comparison(groups, environments, tuple(results), (*improvements, *_improvement(ALL, matrices)), normalised)


def _result(environment: str, group: str, runs: tuple[ComparedRun, ...], scores: np.ndarray) -> GroupResult:
    return GroupResult(environment, group, runs, **estimates(scores))


def _improvement(environment: str, scores: Mapping[str, np.ndarray]) -> list[Improvement]:
    if len(scores) != 2:
        return []
    (first, one), (second, other) = scores.items()
    return [Improvement(environment, first, second, improvement(one, other))]


def _matrix(
    runs: Sequence[ComparedRun], group: str, environments: Sequence[str], scales: Mapping[str, tuple[float, float]]
) -> np.ndarray:
    """[runs, environments] normalised scores of a group."""
    columns = []
    for environment in environments:
        low, high = scales[environment]
        scores = [run.score for run in runs if (run.environment, run.group) == (environment, group)]
        columns.append([(score - low) / (high - low) for score in scores])
    counts = dict(zip(environments, map(len, columns), strict=True))
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} of {environment}" for environment, count in counts.items())
        raise GymlabError(
            f"Group {group!r} has {told}: normalised scores need as many runs in each environment. Leave some out, or "
            "group by something that all environments have: --group algorithm."
        )
    return np.array(columns).T


def spreadsheet_cell(value: Any) -> Any:
    """A value for a table that people open in a spreadsheet: a text that it would take for a formula is quoted."""
    if not isinstance(value, str):
        return value
    return f"'{clean(value)}" if value[:1] in FORMULA_SIGNS else clean(value)


def write_csv(comparison: Comparison, path: Path) -> Path:
    """A row for each environment and group, without bounds where there is no interval; the file appears under its name when it is whole."""
    names = [f"{measure}{suffix}" for measure in MEASURES for suffix in ("", "_low", "_high")] + ["min", "max"]
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["environment", "group", "runs", "seeds", *names, "env_steps", "seconds"])
        for result in (*comparison.results, *comparison.normalised):
            seeds = " ".join(str(run.seed) for run in result.runs)
            intervals = [getattr(result, measure) for measure in MEASURES]
            numbers = [number for found in intervals for number in (found.mean, found.low, found.high)]
            numbers += [result.mean.smallest, result.mean.largest]
            row = [result.environment, result.group, len(result.runs), seeds, *numbers]
            row += [round(result.env_steps), round(result.seconds, 3)]
            writer.writerow([spreadsheet_cell(value) for value in row])
    temporary.replace(path)
    return path
