"""`gymlab bench collect`: how fast PPO gathers rollouts.

Section parts sets collection beside its vector env and its policy alone; section workers compares the ways of stepping
slow environments, with steps of a stated time.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from gymlab.bench.measure import failures
from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport, Section, Table, number
from gymlab.bench.sections import workers
from gymlab.bench.sections.bound import parts_job
from gymlab.bench.settings import Setting
from gymlab.bench.show import comma_integers, show, show_arguments, status

HELP = "environment steps a second of collection, and its parts alone"
SECTIONS = ("parts", "workers")
PARTS = ("collect", "env", "policy")
DEFAULT_COUNTS = (1, 8, 64, 512)


def setting_for(env_id: str, count: int) -> Setting:
    """Rollouts of 128 steps; one epoch in one batch, so that little time goes into updates."""
    return Setting(f"{env_id} x {count}", count, 128, 1, count * 128, env_id=env_id)


def measure(plan: Plan) -> Section:
    """Collection on every setting of the plan."""
    lines, data, failed = [], {}, []
    for setting in plan.settings:
        job = partial(parts_job, setting, plan.seconds, {}, measure=PARTS)
        repeats = plan.interleave(f"collect {setting.name}", {setting.name: job})[setting.name]
        rates = {}
        for part in PARTS:
            seconds = repeats.median(f"{part}_seconds")
            rates[part] = None if seconds is None else setting.rollout / seconds
        data[str(setting.n_envs)] = {f"{part}_steps_per_second": rate for part, rate in rates.items()}
        failed += failures({setting.name: repeats})
        lines.append([str(setting.n_envs), *(number(rates[part]) for part in PARTS)])
    title = f"{plan.settings[0].env_id}: environment steps/s of collection and of its parts alone"
    table = Table(title, ["envs", "collect", "vector env alone", "policy alone"], lines, "; ".join(failed))
    return Section("collect", [table], {"env_id": plan.settings[0].env_id, "counts": data})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("env_id", nargs="?", default="CartPole-v1", help="environment (default CartPole-v1)")
    parser.add_argument("--section", choices=SECTIONS, action="append", help="measure this one only; may be repeated")
    parser.add_argument("--num-envs", type=comma_integers, default=list(DEFAULT_COUNTS), help="numbers, by comma")
    parser.add_argument("--slow-envs", type=int, default=8, help="slow environments of section workers (default 8)")
    parser.add_argument("--step-ms", type=float, default=2.0, help="time of their step (default 2 ms)")
    parser.add_argument("--repeats", type=int, default=3, help="repeats")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of collection in a repeat of section parts")
    show_arguments(parser)


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print."""
    settings = [setting_for(arguments.env_id, count) for count in arguments.num_envs]
    plan = Plan(settings, repeats=arguments.repeats, seconds=arguments.seconds)
    sections = []
    with status(quiet=arguments.json) as say:
        plan = replace(plan, say=say)
        for name in arguments.section or SECTIONS:
            if name == "parts":
                sections.append(measure(plan))
            else:
                sections.append(workers.measure(plan, arguments.slow_envs, arguments.step_ms))
    return show(BenchReport("collect", command_line(arguments), sections), arguments)


def command_line(arguments: argparse.Namespace) -> str:
    """The command that repeats this report."""
    words = [f"gymlab bench collect {arguments.env_id}", *(f"--section {name}" for name in arguments.section or ())]
    words.append(f"--num-envs {','.join(map(str, arguments.num_envs))}")
    words.append(f"--slow-envs {arguments.slow_envs} --step-ms {arguments.step_ms:g}")
    return " ".join([*words, f"--repeats {arguments.repeats}", f"--seconds {arguments.seconds:g}"])
