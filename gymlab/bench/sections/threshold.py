"""Wall time until CartPole is solved, with the hyperparameters of RL Baselines3 Zoo; start-up is not counted."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from gymlab.bench.measure import Repeats, failures
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number, times
from gymlab.bench.settings import REFERENCE, RL_ZOO_CARTPOLE, RL_ZOO_STEPS

THRESHOLD = 475.0
WINDOW = 20
GOAL = 0.5
LIBRARIES = ("gymlab", REFERENCE)


def measure(plan: Plan) -> Section:
    """Both libraries on the same seeds, interleaved; one torch thread each."""

    def job(library: str, repeat: int) -> dict[str, Any]:
        return {
            "task": "threshold",
            "library": library,
            "threads": 1,
            "options": {},
            "setting": RL_ZOO_CARTPOLE.to_dict(),
            "env_steps": RL_ZOO_STEPS,
            "seed": plan.seeds[repeat],
            "threshold": THRESHOLD,
            "window": WINDOW,
        }

    jobs = {library: partial(job, library) for library in LIBRARIES}
    measured = plan.interleave("time to threshold", jobs, repeats=len(plan.seeds))
    summaries = {library: summarize(measured[library]) for library in LIBRARIES}
    mine, theirs = summaries["gymlab"]["median_seconds"], summaries[REFERENCE]["median_seconds"]
    ratio = None if mine is None or theirs is None else mine / theirs
    lines = [
        [
            library,
            f"{summary['reached']} of {len(plan.seeds)}",
            number(summary["median_seconds"]),
            ", ".join(number(seconds) for seconds in summary["seconds"]),
            number(summary["median_env_steps"]),
        ]
        for library, summary in summaries.items()
    ]
    table = Table(
        f"CartPole-v1: seconds until the mean of {WINDOW} training episodes passes {THRESHOLD:g}",
        ["library", "seeds that pass", "median s", "each seed", "median env steps"],
        lines,
        f"gymlab / {REFERENCE}: {times(ratio)} (ratio of medians); seeds {', '.join(map(str, plan.seeds))}. "
        + "; ".join(failures(measured)),
    )
    data = {"threshold": THRESHOLD, "window": WINDOW, "seeds": list(plan.seeds), "ratio": ratio, "peers": summaries}
    check = Check(f"time to {THRESHOLD:g}: gymlab / {REFERENCE}", ratio, GOAL, at_least=False)
    return Section("threshold", [table], data, [check])


def summarize(repeats: Repeats) -> dict[str, Any]:
    """Seeds that passed and when. A seed that never did counts as slower than all others in the median."""
    seconds = [_seconds(result) for result in repeats.results]
    steps = [result["env_steps"] for result in repeats.results if result is not None and result["reached"]]
    ordered = sorted(float("inf") if value is None else value for value in seconds)
    middle = statistics.median_high(ordered) if ordered else float("inf")
    return {
        "reached": len(steps),
        "seconds": seconds,
        "median_seconds": None if middle == float("inf") else statistics.median(ordered),
        "median_env_steps": statistics.median(steps) if steps else None,
        "errors": repeats.errors,
    }


def _seconds(result: dict[str, Any] | None) -> float | None:
    return result["seconds"] if result is not None and result["reached"] else None
