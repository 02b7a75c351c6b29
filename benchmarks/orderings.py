"""Variants of an algorithm against each other: trained like the claims, compared by their training curves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from benchmarks.claims import Claim
from gymlab.engine.run import Run
from gymlab.metrics.names import ENV_STEPS, episode_return
from gymlab.metrics.plots import curves
from gymlab.metrics.report import NOT_RECORDED
from gymlab.metrics.statistics import estimate

MEASURED = "Measured on"
"""Begins the line that says when and where."""
TRAIN_RETURN = episode_return("train")


@dataclass(frozen=True)
class Ordering:
    """Experiments in the order that is claimed, best first."""

    title: str
    slug: str
    experiments: dict[str, str]
    """What is different about each, in a few words."""
    seeds: tuple[int, ...]
    reaches: float
    """A training return; how soon each gets there is told."""

    @property
    def claims(self) -> list[Claim]:
        """What must be trained; the return itself is not judged."""
        return [Claim(experiment, self.seeds, at_least=-np.inf) for experiment in self.experiments]

    def holds(self, runs_dir: Path) -> bool:
        """Whether the mean training return falls from the first experiment to the last."""
        scores = [fmean(_area(run) for run in _runs(claim, runs_dir)) for claim in self.claims]
        return scores == sorted(scores, reverse=True)

    def section(self, runs_dir: Path, pictures: Path) -> list[str]:
        """Heading, table and picture of the comparison, as lines of Markdown."""
        lines = [
            f"## {self.title}",
            "",
            f"`gymlab train <experiment> --seeds {self.seeds[0]}-{self.seeds[-1]}`; ordered by the training return over the whole budget.",
            _measured([run.record for claim in self.claims for run in _runs(claim, runs_dir)]),
        ]
        lines += [
            "",
            f"| experiment | | training return over the budget | at its end | final agent | env steps to a training return of {self.reaches:g}, by seed |",
        ]
        lines += ["|---|---|---|---|---|---|"]
        for claim, words in zip(self.claims, self.experiments.values(), strict=True):
            runs = list(_runs(claim, runs_dir))
            cells = [
                f"`{claim.experiment}`",
                words,
                str(estimate([_area(run) for run in runs])),
                str(estimate([_points(run)[1][-1] for run in runs])),
                str(estimate([run.result["mean"] for run in runs])),
                ", ".join(_arrival(run, self.reaches) for run in runs),
            ]
            lines.append("| " + " | ".join(cells) + " |")
        groups = {claim.experiment: [run.metrics for run in _runs(claim, runs_dir)] for claim in self.claims}
        curves(groups, pictures / f"{self.slug}.png", threshold=self.reaches, title=self.title)
        return [*lines, "", f"![{self.title}](images/{self.slug}.png)", ""]


def load_orderings() -> list[Ordering]:
    """What orderings.yaml lists."""
    entries = yaml.safe_load((Path(__file__).parent / "orderings.yaml").read_text())
    return [Ordering(**{**entry, "seeds": tuple(entry["seeds"])}) for entry in entries]


def _measured(records: Sequence[Mapping[str, Any]]) -> str:
    """When, with which commit and on which processor; each once."""
    days = dict.fromkeys(time.strftime("%Y-%m-%d", time.gmtime(record["started"])) for record in records)
    commits = dict.fromkeys((record.get("versions") or {}).get("commit", NOT_RECORDED) for record in records)
    processors = dict.fromkeys((record.get("machine") or {}).get("processor", NOT_RECORDED) for record in records)
    return f"{MEASURED} {', '.join(days)}; commit {', '.join(commits)}; processor: {', '.join(processors)}."


def _runs(claim: Claim, runs_dir: Path) -> Iterator[Run]:
    return (claim.run(runs_dir, seed) for seed in claim.seeds)


def _points(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Env steps and training returns of the epochs that had one."""
    metrics = run.metrics
    pairs = zip(metrics[ENV_STEPS], metrics[TRAIN_RETURN], strict=True)
    points = np.array([pair for pair in pairs if None not in pair], dtype=np.float64)
    return points[:, 0], points[:, 1]


def _area(run: Run) -> float:
    """Mean training return over environment steps: the area under the curve as a share of its width."""
    steps, returns = _points(run)
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def _arrival(run: Run, level: float) -> str:
    steps, returns = _points(run)
    there = np.flatnonzero(returns >= level)
    return f"{steps[there[0]] / 1000:.0f}k" if there.size else "never"
