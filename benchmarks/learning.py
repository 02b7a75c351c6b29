"""Train what claims.yaml lists, judge it, and write docs/results.md with its curves from the run directories."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import deque
from pathlib import Path

from benchmarks.claims import Claim, load_claims
from benchmarks.orderings import Ordering, load_orderings
from benchmarks.results_page import write_page

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Train what is missing, write the page, say which claims hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--only", default="", help="experiments whose name contains this")
    parser.add_argument("--long", action="store_true", help="what takes hours too")
    parser.add_argument(
        "--runs-dir", type=Path, default=ROOT / "runs" / "verify", help="finished runs in it are not trained again"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results.md")
    arguments = parser.parse_args()
    runs_dir = arguments.runs_dir
    claims, orderings = load_claims(), load_orderings()
    chosen = [claim for claim in claims if arguments.only in claim.experiment and (arguments.long or not claim.long)]
    compared = [ordering for ordering in orderings if arguments.only in " ".join(ordering.experiments)]
    train_missing([*chosen, *(claim for ordering in compared for claim in ordering.claims)], runs_dir, arguments.jobs)
    write_page(claims, orderings, runs_dir, arguments.out)
    print(f"wrote {arguments.out}")
    return judge(chosen, compared, runs_dir)


def train_missing(claims: list[Claim], runs_dir: Path, jobs: int) -> None:
    """Train each seed that has no finished run, `jobs` at a time."""
    waiting = deque(
        dict.fromkeys(
            (claim.experiment, seed, claim.run(runs_dir, seed).id)
            for claim in claims
            for seed in claim.seeds
            if claim.run(runs_dir, seed).status != "finished"
        )
    )
    running: list[tuple[str, subprocess.Popen[bytes]]] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            experiment, seed, name = waiting.popleft()
            command = [sys.executable, "-m", "gymlab", "train", experiment, "--seed", str(seed), "--quiet"]
            running.append(
                (name, subprocess.Popen([*command, "--runs-dir", str(runs_dir), "--run-id", name], cwd=ROOT))
            )
            print(f"training {name}", flush=True)
        name, process = running.pop(0)
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            running.append((name, process))


def judge(claims: list[Claim], orderings: list[Ordering], runs_dir: Path) -> int:
    """Print each claim and ordering with its verdict; 1 if one does not hold."""
    failed = 0
    for claim in claims:
        runs = [claim.run(runs_dir, seed) for seed in claim.seeds]
        values = [claim.value(run) for run in runs if run.status == "finished"]
        held = len(values) == len(runs) and claim.met(values)
        failed += not held
        print(
            f"{'holds ' if held else 'FAILS '} {claim.experiment}: {[round(value, 2) for value in values]}, wanted {claim.at_least} ({claim.judged})"
        )
    for ordering in orderings:
        held = all(claim.is_trained(runs_dir) for claim in ordering.claims) and ordering.holds(runs_dir)
        failed += not held
        print(f"{'holds ' if held else 'FAILS '} {' > '.join(ordering.experiments)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
