"""`gymlab bench loader`: how fast shuffled minibatches come out of the buffer, for vectors and for images."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from gymlab.bench.measure import failures
from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport, Section, Table, number
from gymlab.bench.show import show, show_arguments, status

HELP = "minibatches a second out of the buffer, with nothing learned from them"
OBSERVATIONS: dict[str, tuple[list[int], str]] = {
    "4 numbers": ([4], "float32"),
    "64 numbers": ([64], "float32"),
    "4x84x84 image": ([4, 84, 84], "uint8"),
}
"""Shape and type of one observation, by what is shown."""
KEYS = ("batches_per_second", "rows_per_second", "megabytes_per_second")


def batches_job(sizes: dict[str, int], shape: list[int], dtype: str, seconds: float, seed: int) -> dict[str, Any]:
    """A job that measures one kind of observation."""
    return {"task": "batches", "threads": 1, **sizes, "shape": shape, "dtype": dtype, "seconds": seconds, "seed": seed}


def measure(plan: Plan, sizes: dict[str, int]) -> Section:
    """Every kind of observation."""
    jobs = {
        name: partial(batches_job, sizes, shape, dtype, plan.seconds) for name, (shape, dtype) in OBSERVATIONS.items()
    }
    measured = plan.interleave("minibatches", jobs)
    data = {name: {key: repeats.median(key) for key in KEYS} for name, repeats in measured.items()}
    lines = [[name, *(number(figures[key]) for key in KEYS)] for name, figures in data.items()]
    title = "Shuffled minibatches of {batch_size} out of a rollout of {n_envs} envs x {n_steps} steps".format(**sizes)
    columns = ["observation", "minibatches/s", "rows/s", "MB/s"]
    note = "; ".join(dict.fromkeys(failures(measured)))
    return Section("loader", [Table(title, columns, lines, note)], {"sizes": sizes, "observations": data})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--num-envs", type=int, default=8, help="environments of the rollout (default 8)")
    parser.add_argument("--num-steps", type=int, default=128, help="steps of the rollout (default 128)")
    parser.add_argument("--batch-size", type=int, default=256, help="rows of a minibatch (default 256)")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of loading in a repeat")
    show_arguments(parser)


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print."""
    sizes = {"n_envs": arguments.num_envs, "n_steps": arguments.num_steps, "batch_size": arguments.batch_size}
    plan = Plan(repeats=arguments.repeats, seconds=arguments.seconds, timeout=120.0)
    options = {
        "--num-envs": arguments.num_envs,
        "--num-steps": arguments.num_steps,
        "--batch-size": arguments.batch_size,
    }
    command = "gymlab bench loader " + " ".join(f"{name} {value}" for name, value in options.items())
    with status(quiet=arguments.json) as say:
        section = measure(replace(plan, say=say), sizes)
    return show(BenchReport("loader", command, [section]), arguments)
