"""`gymlab bench dreams`: World Models' controllers judged inside M, a whole population at once against one dream after the other."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from gymlab.bench.measure import failures
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number, times
from gymlab.bench.show import run_turns, turn_arguments

HELP = "World Models' controllers in dreams: a population at once against one by one"
SIZES: dict[str, dict[str, int]] = {
    "CartPole-v1": {"latent": 4, "actions": 2, "hidden": 32},
    "CarRacing-v3": {"latent": 32, "actions": 3, "hidden": 256},
    "VizDoom-TakeCover-v0": {"latent": 64, "actions": 1, "hidden": 512},
}
"""Sizes of M by the environment whose experiment has them."""
POPULATION = {"population": 64, "rollouts": 16}
"""The paper's."""
GOAL = 20.0
"""Rate of all together divided by that of one by one."""


def dreams_job(sizes: dict[str, int], threads: int, seconds: float, seed: int) -> dict[str, Any]:
    """A job that times both ways, turn by turn."""
    return {"task": "dreams", "threads": threads, "seconds": seconds, "seed": seed, **sizes, **POPULATION}


def measure(plan: Plan, threads: int) -> Section:
    """Both ways at each size of M."""
    jobs = {name: partial(dreams_job, sizes, threads, plan.seconds) for name, sizes in SIZES.items()}
    measured = plan.interleave("dreams", jobs)
    lines, checks, data = [], [], {}
    for name, repeats in measured.items():
        found = {key: repeats.median(key) for key in ("alone", "together", "ratio")}
        data[name] = {**found, "errors": repeats.errors}
        hidden = str(SIZES[name]["hidden"])
        lines.append([name, hidden, number(found["alone"]), number(found["together"]), times(found["ratio"])])
        checks.append(Check(f"M of {name}: at once / one by one", found["ratio"], GOAL))
    title = "Dreamt steps/s of {population} controllers with {rollouts} dreams each, {threads} thread(s)"
    columns = ["M of", "LSTM", "one by one", "at once", "faster"]
    table = Table(title.format(**POPULATION, threads=threads), columns, lines, " ".join(failures(measured)))
    return Section("dreams", [table], {"threads": threads, **POPULATION, "sizes": data}, checks)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    turn_arguments(parser, "way in a turn")


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when `--check` is given and a goal was missed."""
    return run_turns("dreams", measure, arguments)
