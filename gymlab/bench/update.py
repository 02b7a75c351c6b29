"""`gymlab bench update`: microseconds a PPO minibatch takes with each update backend."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from gymlab.bench.measure import failures, median_ratio
from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport, Section, Table, number, scaled, times
from gymlab.bench.sections.bound import parts_job
from gymlab.bench.settings import SETTINGS
from gymlab.bench.show import comma_list, show, show_arguments, status

HELP = "microseconds a PPO minibatch takes with each update backend"
KEY = "update_seconds_per_minibatch"


def measure(plan: Plan) -> Section:
    """Every backend on every setting."""
    lines, failed = [], []
    data: dict[str, Any] = {}
    first = plan.backends[0]
    for setting in plan.settings:
        jobs = {
            backend: partial(parts_job, setting, plan.seconds, {"update_backend": backend}, measure=("update",))
            for backend in plan.backends
        }
        measured = plan.interleave(f"update {setting.name}", jobs)
        medians = {backend: repeats.median(KEY) for backend, repeats in measured.items()}
        speedups = {backend: median_ratio(measured[first], measured[backend], KEY) for backend in plan.backends}
        data[setting.name] = {
            backend: {
                "microseconds": scaled(medians[backend], 1e6),
                "speedup": speedups[backend],
                "errors": measured[backend].errors,
            }
            for backend in plan.backends
        }
        failed += failures(measured)
        cells = [
            f"{number(figures['microseconds'])} ({times(figures['speedup'])})"
            for figures in data[setting.name].values()
        ]
        lines.append([f"batch {setting.batch_size}, {setting.n_epochs} epochs ({setting.name})", *cells])
    title = f"Microseconds a minibatch (and how many times faster than {first})"
    return Section("update", [Table(title, ["setting", *plan.backends], lines, "; ".join(dict.fromkeys(failed)))], data)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--backends", type=comma_list, default=["eager", "compile", "analytic"], help="by comma; the first is 1x"
    )
    parser.add_argument("--setting", action="append", choices=list(SETTINGS), help="only this setting; may be repeated")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of training in a repeat")
    show_arguments(parser)


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print."""
    settings = [SETTINGS[name] for name in arguments.setting or SETTINGS]
    plan = Plan(settings, backends=arguments.backends, repeats=arguments.repeats, seconds=arguments.seconds)
    command = f"gymlab bench update --backends {','.join(arguments.backends)}"
    with status(quiet=arguments.json) as say:
        section = measure(replace(plan, say=say))
    return show(BenchReport("update", command, [section]), arguments)
