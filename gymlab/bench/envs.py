"""`gymlab bench envs`: how fast vector environments step, by backend and number, against Gymnasium's SyncVectorEnv."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from gymlab.bench.measure import failures, median_ratio
from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport, Section, Table, number, times
from gymlab.bench.show import comma_integers, comma_list, show, show_arguments, status

HELP = "step rates of vector environments by backend and number of environments"
REFERENCE = "gymnasium"
BACKENDS = ("native", "sync", "async")
DEFAULT_COUNTS = (1, 8, 64, 512)
MOST_PROCESSES = 64
"""The async backend has a process for each environment; more than this are not started."""


def steps_job(env_id: str, num_envs: int, seconds: float, backend: str, seed: int) -> dict[str, Any]:
    """A job that measures one backend."""
    return {
        "task": "steps",
        "threads": 1,
        "env_id": env_id,
        "num_envs": num_envs,
        "backend": backend,
        "seconds": seconds,
        "seed": seed,
    }


def measure(plan: Plan, env_id: str, counts: list[int], backends: list[str]) -> Section:
    """Every backend at every number of environments."""
    lines, failed = [], []
    data: dict[str, Any] = {}
    for count in counts:
        names = [REFERENCE, *(name for name in backends if name != "async" or count <= MOST_PROCESSES)]
        jobs = {name: partial(steps_job, env_id, count, plan.seconds, name) for name in names}
        measured = plan.interleave(f"{env_id} x {count}", jobs)
        data[str(count)] = {
            name: {
                "steps_per_second": repeats.median("steps_per_second"),
                "ratio": median_ratio(repeats, measured[REFERENCE], "steps_per_second"),
                "errors": repeats.errors,
            }
            for name, repeats in measured.items()
        }
        failed += failures(measured)
        lines.append([str(count), *(cell(data[str(count)].get(name)) for name in (REFERENCE, *backends))])
    columns = ["envs", f"{REFERENCE} sync", *(f"gymlab {backend}" for backend in backends)]
    table = Table(
        f"{env_id}: environment steps/s with random actions", columns, lines, "; ".join(dict.fromkeys(failed))
    )
    return Section("envs", [table], {"env_id": env_id, "counts": data})


def cell(figures: dict[str, Any] | None) -> str:
    """A rate with its ratio; a dash for what was not measured."""
    if figures is None or figures["steps_per_second"] is None:
        return "–"
    return f"{number(figures['steps_per_second'])} ({times(figures['ratio'])})"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("env_id", nargs="?", default="CartPole-v1", help="environment (default CartPole-v1)")
    parser.add_argument("--num-envs", type=comma_integers, default=list(DEFAULT_COUNTS), help="numbers, by comma")
    parser.add_argument("--backends", type=comma_list, default=list(BACKENDS), help="native, sync, async, by comma")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of stepping in a repeat")
    show_arguments(parser)


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print."""
    plan = Plan(repeats=arguments.repeats, seconds=arguments.seconds, timeout=120.0)
    counts = ",".join(map(str, arguments.num_envs))
    command = f"gymlab bench envs {arguments.env_id} --num-envs {counts} --backends {','.join(arguments.backends)}"
    with status(quiet=arguments.json) as say:
        section = measure(replace(plan, say=say), arguments.env_id, arguments.num_envs, arguments.backends)
    return show(BenchReport("envs", command, [section]), arguments)
