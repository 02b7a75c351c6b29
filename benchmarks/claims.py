"""What gymlab claims to learn, as claims.yaml lists it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import yaml

from gymlab.engine.run import Run


@dataclass(frozen=True)
class Claim:
    """An experiment, its seeds, and what they must reach."""

    experiment: str
    seeds: tuple[int, ...]
    at_least: float
    judged: str = "mean"
    long: bool = False
    """Takes hours: `make verify-long` trains it, `make verify` does not."""
    metric: str | None = None
    """A training metric whose last value is judged; None: the final agent's mean return over the evaluation episodes."""
    before: str | None = None
    """A change of the algorithm that the row on the page was measured before; to be removed when it is trained anew."""
    others: tuple[tuple[str, float, float], ...] = ()
    """What others report: name, env steps, return; drawn beside the curve."""

    @property
    def slug(self) -> str:
        """The experiment's name as a run id and file name."""
        return self.experiment.lower().replace(":", "-").replace("/", "-").replace("_", "-")

    @property
    def command(self) -> str:
        """What trains it."""
        seeds = f"--seed {self.seeds[0]}" if len(self.seeds) == 1 else f"--seeds {self.seeds[0]}-{self.seeds[-1]}"
        return f"gymlab train {self.experiment} {seeds}"

    @property
    def label(self) -> str:
        """The experiment, and what of it is judged unless that is the return."""
        return self.experiment if self.metric is None else f"{self.experiment} ({self.metric})"

    def run(self, runs_dir: Path, seed: int) -> Run:
        """The run of a seed, trained or not."""
        return Run(runs_dir / f"{self.slug}-s{seed}")

    def is_trained(self, runs_dir: Path) -> bool:
        """Whether every seed has a finished run."""
        return all(self.run(runs_dir, seed).status == "finished" for seed in self.seeds)

    def value(self, run: Run) -> float:
        """The figure that is judged."""
        if self.metric is None:
            return run.result["mean"]
        return next(value for value in reversed(run.metrics[self.metric]) if value is not None)

    def met(self, values: list[float]) -> bool:
        """Whether the seeds' values bear the claim out."""
        return (min(values) if self.judged == "each" else fmean(values)) >= self.at_least


def load_claims() -> list[Claim]:
    """What claims.yaml lists."""
    entries = yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text())
    return [
        Claim(**{**entry, "seeds": tuple(entry["seeds"]), "others": tuple(map(tuple, entry.get("others", [])))})
        for entry in entries
    ]
