"""Train what claims.yaml lists, judge it, and write docs/results.md with its curves from the run directories."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from gymlab.engine.run import Run
from gymlab.metrics.names import WALL_SECONDS, episode_return
from gymlab.metrics.plots import curves
from gymlab.metrics.report import RunResult, results_table

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Claim:
    """An experiment, its seeds, and what they must reach."""

    experiment: str
    seeds: tuple[int, ...]
    at_least: float
    judged: str = "mean"
    metric: str | None = None
    """A training metric whose last value is judged; None: the final agent's mean return over the evaluation episodes."""

    @property
    def slug(self) -> str:
        """The experiment's name as a run id and file name."""
        return self.experiment.lower().replace(":", "-").replace("/", "-").replace("_", "-")

    @property
    def command(self) -> str:
        """What trains it."""
        seeds = f"--seed {self.seeds[0]}" if len(self.seeds) == 1 else f"--seeds {self.seeds[0]}-{self.seeds[-1]}"
        return f"gymlab train {self.experiment} {seeds}"

    def run(self, runs_dir: Path, seed: int) -> Run:
        """The run of a seed, trained or not."""
        return Run(runs_dir / f"{self.slug}-s{seed}")

    def value(self, run: Run) -> float:
        """The figure that is judged."""
        if self.metric is None:
            return run.result["mean"]
        return next(value for value in reversed(run.metrics[self.metric]) if value is not None)

    def met(self, values: list[float]) -> bool:
        """Whether the seeds' values bear the claim out."""
        return (min(values) if self.judged == "each" else fmean(values)) >= self.at_least


def main() -> int:
    """Train what is missing, write the page, say which claims hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--only", default="", help="experiments whose name contains this")
    parser.add_argument(
        "--runs-dir", type=Path, default=ROOT / "runs" / "verify", help="finished runs in it are not trained again"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results.md")
    arguments = parser.parse_args()
    claims = [
        Claim(**{**entry, "seeds": tuple(entry["seeds"])})
        for entry in yaml.safe_load((Path(__file__).parent / "claims.yaml").read_text())
    ]
    chosen = [claim for claim in claims if arguments.only in claim.experiment]
    train_missing(chosen, arguments.runs_dir, arguments.jobs)
    trained = [
        claim
        for claim in claims
        if all(claim.run(arguments.runs_dir, seed).status == "finished" for seed in claim.seeds)
    ]
    write_page(trained, arguments.runs_dir, arguments.out)
    return judge(chosen, arguments.runs_dir)


def train_missing(claims: list[Claim], runs_dir: Path, jobs: int) -> None:
    """Train each seed that has no finished run, `jobs` at a time."""
    waiting = deque(
        (claim, seed) for claim in claims for seed in claim.seeds if claim.run(runs_dir, seed).status != "finished"
    )
    running: list[tuple[str, subprocess.Popen[bytes]]] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            claim, seed = waiting.popleft()
            name = claim.run(runs_dir, seed).id
            command = [sys.executable, "-m", "gymlab", "train", claim.experiment, "--seed", str(seed), "--quiet"]
            running.append(
                (name, subprocess.Popen([*command, "--runs-dir", str(runs_dir), "--run-id", name], cwd=ROOT))
            )
            print(f"training {name}", flush=True)
        name, process = running.pop(0)
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            running.append((name, process))


def results(claims: list[Claim], runs_dir: Path) -> list[RunResult]:
    """A line of the table for each run."""
    found = []
    for claim in claims:
        for seed in claim.seeds:
            run = claim.run(runs_dir, seed)
            record: dict[str, Any] = run.record
            found.append(
                RunResult(
                    experiment=claim.experiment if claim.metric is None else f"{claim.experiment} ({claim.metric})",
                    seed=seed,
                    value=claim.value(run),
                    env_steps=record["counters"]["env_steps"],
                    wall_seconds=run.metrics[WALL_SECONDS][-1] or 0.0,
                    command=claim.command,
                    commit=record["versions"].get("commit", "?"),
                    threshold=claim.at_least,
                )
            )
    return found


def write_page(claims: list[Claim], runs_dir: Path, out: Path) -> None:
    """docs/results.md and a picture of each experiment's curve over its seeds."""
    pictures = out.parent / "images"
    pictures.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Results",
        "",
        "Written by `make verify` from run directories; nothing here was typed by hand. Returns are the environment's own, of the final agent over its",
        "evaluation episodes on a stream that training never saw; intervals are 95% bootstrap over seeds. Seeds are the first ones: none was picked.",
        "",
        results_table(results(claims, runs_dir)),
    ]
    for claim in claims:
        picture = pictures / f"{claim.slug}.png"
        runs = [claim.run(runs_dir, seed).metrics for seed in claim.seeds]
        shown = (
            {"evaluation": episode_return("val"), "training": episode_return("train")}
            if claim.metric is None
            else {"training": claim.metric}
        )
        curves(
            dict.fromkeys(shown, runs),
            picture,
            metric=shown,
            threshold=claim.at_least,
            title=claim.experiment,
        )
        lines += [f"![{claim.experiment}](images/{picture.name})", ""]
    out.write_text("\n".join(lines))
    print(f"wrote {out}")


def judge(claims: list[Claim], runs_dir: Path) -> int:
    """Print each claim with its verdict; 1 if one does not hold."""
    failed = 0
    for claim in claims:
        runs = [claim.run(runs_dir, seed) for seed in claim.seeds]
        values = [claim.value(run) for run in runs if run.status == "finished"]
        held = len(values) == len(runs) and claim.met(values)
        failed += not held
        print(
            f"{'holds ' if held else 'FAILS '} {claim.experiment}: {[round(value, 2) for value in values]}, wanted {claim.at_least} ({claim.judged})"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
