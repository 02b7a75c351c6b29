"""`gymlab bench atari`: PPO on pictures with the Nature network against stable-baselines3, and what collecting them costs."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from gymlab.bench.launch import training_job
from gymlab.bench.measure import failures
from gymlab.bench.plan import Plan
from gymlab.bench.processor import computes_bfloat16
from gymlab.bench.report import BenchReport, Check, Section, Table, number, percent
from gymlab.bench.sections.bound import parts_job
from gymlab.bench.sections.speed import figures, goals, table
from gymlab.bench.settings import REFERENCE, Contender, Setting, choose_peers
from gymlab.bench.show import show, show_arguments, status

HELP = "PPO on Atari pictures against stable-baselines3; collection beside its parts"
PONG = Setting(
    "pong",
    8,
    128,
    4,
    256,
    nominal_rate=200,
    goal=1.5,
    learning_rate=2.5e-4,
    clip_range=0.1,
    env_id="ALE/Pong-v5",
    pixels=True,
)
"""8 envs x 128 steps, 4 epochs of 4 minibatches: the update is nearly all of the time."""
BFLOAT_GOAL = 2.0
"""Ratio to the reference that half the bits must bring where the processor computes in them."""
COLLECT_GOAL = 0.85
"""Share of the rate that the vector env and the policy alone would have together."""
PARTS = ("collect", "env", "policy")


def contenders(bfloat16: bool, threads: int) -> list[Contender]:
    """gymlab as it comes, gymlab in bfloat16 where that means something, and the reference."""
    options = {"torch_threads": threads}
    rows = [Contender("gymlab", "gymlab", threads, options)]
    if bfloat16:
        rows.append(Contender("gymlab bf16", "gymlab", threads, {**options, "precision": "bf16-mixed"}))
    return [*rows, Contender(REFERENCE, REFERENCE, threads)]


def measure_speed(plan: Plan, rows: list[Contender]) -> Section:
    """Train the same number of steps with every contender, interleaved."""
    setting = plan.settings[0]
    if any("precision" in row.options for row in rows):
        setting = replace(setting, fastest_goal=BFLOAT_GOAL)
    jobs = {row.name: partial(training_job, row, setting, setting.steps_for(plan.seconds)) for row in rows}
    measured = plan.interleave("atari speed", jobs)
    data = {"setting": setting.to_dict(), "peers": figures(measured)}
    return Section("speed", [table(setting, rows, measured)], data, goals(setting, rows, measured))


def measure_collection(plan: Plan, threads: int) -> Section:
    """Collection beside the vector env and the policy, each alone."""
    setting = plan.settings[0]
    job = partial(parts_job, setting, plan.seconds, {"torch_threads": threads}, measure=PARTS)
    repeats = plan.interleave("atari collection", {"collect": job})["collect"]
    seconds = {part: repeats.median(f"{part}_seconds") for part in PARTS}
    rates = {part: None if spent is None else setting.rollout / spent for part, spent in seconds.items()}
    share = None
    if None not in seconds.values():
        share = (seconds["env"] + seconds["policy"]) / seconds["collect"]  # type: ignore[operator]
    rows = [[*(number(rates[part]) for part in PARTS), percent(share)]]
    columns = ["collect", "vector env alone", "policy alone", "share of both"]
    note = "; ".join(failures({"collect": repeats}))
    data = {**{f"{part}_steps_per_second": rate for part, rate in rates.items()}, "share": share}
    return Section(
        "collect",
        [Table("Environment steps/s of collection and of its parts alone", columns, rows, note)],
        data,
        [Check("collection / (vector env + policy)", share, COLLECT_GOAL)],
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="length of a training at the reference's pace (default 30)"
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads of all contenders (default 1)")
    show_arguments(parser)


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when `--check` is given and a goal was missed."""
    choose_peers([REFERENCE])
    plan = Plan([PONG], repeats=arguments.repeats, seconds=arguments.seconds, timeout=1800.0)
    rows = contenders(computes_bfloat16(), arguments.threads)
    command = f"gymlab bench atari --repeats {arguments.repeats} --seconds {arguments.seconds:g} --threads {arguments.threads}"
    with status(quiet=arguments.json) as say:
        plan = replace(plan, say=say)
        sections = [measure_speed(plan, rows), measure_collection(plan, arguments.threads)]
    return show(BenchReport("atari", command, sections), arguments)
