"""`gymlab bench ppo`: against the peers and its own bound, what the engine costs, on a busy machine, to a threshold, from a cold start."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace

from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport, Section
from gymlab.bench.sections import bound, busy, overhead, speed, startup, threshold
from gymlab.bench.settings import REFERENCE, SETTINGS, choose_peers
from gymlab.bench.show import comma_list, show, show_arguments, status

HELP = "PPO speed against the peers, the bound, overhead, a busy machine, time to threshold, start-up"

# Start-up comes first: it is short, and the one that stops everything when gymlab does not run at all.
SECTIONS: dict[str, Callable[[Plan], Section]] = {
    "startup": startup.measure,
    "speed": speed.measure,
    "bound": bound.measure,
    "overhead": overhead.measure,
    "busy": busy.measure,
    "threshold": threshold.measure,
}
NEEDS_REFERENCE = {"speed", "busy", "threshold"}


def run(plan: Plan, sections: Sequence[str] = tuple(SECTIONS), command: str = "gymlab bench ppo") -> BenchReport:
    """Measure the sections one after another."""
    return BenchReport("ppo", command, [SECTIONS[name](plan) for name in SECTIONS if name in sections])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--quick", action="store_true", help="short trainings, few repeats: to see that all of it runs")
    parser.add_argument("--repeats", type=int, help="interleaved repeats of everything (default 5, quick 2)")
    parser.add_argument(
        "--seconds", type=float, help="length of a training at the reference's pace (default 6, quick 1)"
    )
    parser.add_argument("--section", action="append", choices=list(SECTIONS), help="only this section; may be repeated")
    parser.add_argument("--setting", action="append", choices=list(SETTINGS), help="only this setting; may be repeated")
    parser.add_argument("--peers", type=comma_list, help=f"peers beside {REFERENCE}, by comma (default: all installed)")
    parser.add_argument("--backends", type=comma_list, help="values of update_backend measured beside the default")
    show_arguments(parser)


def plan_from(arguments: argparse.Namespace) -> Plan:
    """The plan that the options ask for."""
    sections = arguments.section or list(SECTIONS)
    plan = Plan(repeats=2, seconds=1.0, seeds=(0,)) if arguments.quick else Plan()
    if NEEDS_REFERENCE & set(sections):
        plan = replace(plan, peers=choose_peers(arguments.peers))
    if arguments.setting:
        plan = replace(plan, settings=[SETTINGS[name] for name in SETTINGS if name in arguments.setting])
    if arguments.backends is not None:
        plan = replace(plan, backends=arguments.backends)
    return replace(plan, repeats=arguments.repeats or plan.repeats, seconds=arguments.seconds or plan.seconds)


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when `--check` is given and a goal was missed."""
    plan = plan_from(arguments)
    with status(quiet=arguments.json) as say:
        report = run(replace(plan, say=say), arguments.section or list(SECTIONS), command_line(arguments))
    return show(report, arguments)


def command_line(arguments: argparse.Namespace) -> str:
    """The command that repeats this report."""
    words = ["gymlab bench ppo"]
    words += ["--quick"] if arguments.quick else []
    for name in ("repeats", "seconds"):
        value = getattr(arguments, name)
        words += [f"--{name} {value:g}"] if value else []
    for name in ("section", "setting"):
        words += [f"--{name} {value}" for value in getattr(arguments, name) or ()]
    for name in ("peers", "backends"):
        value = getattr(arguments, name)
        words += [f"--{name} {','.join(value)}"] if value else []
    return " ".join(words)
