"""Train what claims.yaml lists, judge it, and write docs/results.md with its curves from the run directories."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks.claims import Claim, load_claims
from benchmarks.orderings import Ordering, load_orderings
from gymlab.metrics.names import WALL_SECONDS, episode_return
from gymlab.metrics.plots import curves
from gymlab.metrics.report import RunResult, results_table

ROOT = Path(__file__).parents[1]
SMOKED = "smoke.json"
"""Where `make verify` has `gymlab smoke` write its result, among the runs."""


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
    write_page(
        [claim for claim in claims if is_trained(claim, runs_dir)],
        [ordering for ordering in orderings if all(is_trained(claim, runs_dir) for claim in ordering.claims)],
        runs_dir,
        arguments.out,
    )
    return judge(chosen, compared, runs_dir)


def is_trained(claim: Claim, runs_dir: Path) -> bool:
    """Whether every seed has a finished run."""
    return all(claim.run(runs_dir, seed).status == "finished" for seed in claim.seeds)


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


def write_page(claims: list[Claim], orderings: list[Ordering], runs_dir: Path, out: Path) -> None:
    """docs/results.md, a picture of each experiment's curve over its seeds, and the comparisons."""
    pictures = out.parent / "images"
    pictures.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Results",
        "",
        "Written by `make verify` and `make verify-long` from run directories; nothing here was typed by hand. Returns are the environment's own, of the final agent over its",
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
            goal="claimed: at least",
            title=claim.experiment,
            marks={name: (steps, value) for name, steps, value in claim.others},
        )
        lines += [f"![{claim.experiment}](images/{picture.name})", ""]
    for ordering in orderings:
        lines += ordering.section(runs_dir, pictures)
    lines += only_smoked(claims, orderings, runs_dir / SMOKED)
    out.write_text("\n".join(lines))
    print(f"wrote {out}")


def only_smoked(claims: list[Claim], orderings: list[Ordering], smoked: Path) -> list[str]:
    """What ships and has no result above: whether a short training of it ran; nothing is said about what it learns."""
    if not smoked.exists():
        return []
    found = json.loads(smoked.read_text())
    shown = {claim.experiment for claim in claims} | {name for ordering in orderings for name in ordering.experiments}
    # Smoke names experiments by their files, where a slash of the id is a dash.
    shown = {name.replace("/", "-") for name in shown}
    others = sorted(
        (result for result in found["results"] if result["name"] not in shown), key=lambda result: result["name"]
    )
    return [
        "## Only smoked",
        "",
        f"These ship and have no result above: `gymlab smoke` trained each for {found['timesteps']} environment steps,",
        "which shows that it runs, and nothing about what it learns.",
        "",
        "| experiment | |",
        "|---|---|",
        *(
            f"| `{result['name']}` | {result['state']}{': ' * bool(result['message'])}{result['message']} |"
            for result in others
        ),
        "",
    ]


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
        held = all(is_trained(claim, runs_dir) for claim in ordering.claims) and ordering.holds(runs_dir)
        failed += not held
        print(f"{'holds ' if held else 'FAILS '} {' > '.join(ordering.experiments)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
