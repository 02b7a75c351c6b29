"""`gymlab bench tdmpc`: seconds of a TD-MPC2 plan and of an update, by size, beside those of the authors' program."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gymlab.bench.measure import failures, median_ratio
from gymlab.bench.peer_environment import check_peer_source, peer_python, peer_source_arguments, peer_worker
from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport, Check, Section, Table, number, percent, times
from gymlab.bench.show import show, show_arguments, status

HELP = "a plan and an update of TD-MPC2, beside those of its authors' program"
PEER = "tdmpc2"
PEER_PACKAGES = ["tensordict==0.15.3", "pyyaml==6.0.3"]
REPOSITORY = "nicklashansen/tdmpc2"
PEER_FILE = "tdmpc2/tdmpc2.py"
PEER_DIRECTORY = Path(".venv-tdmpc2")
PEER_SCRIPT = Path(__file__).parent / "peers" / "tdmpc2_peer.py"
SIZES = {"1m": 1, "5m": 5, "19m": 19, "48m": 48}
"""gymlab's names, and the authors'."""
WORK = {"samples": 512, "policy_samples": 24, "elites": 64, "iterations": 6, "horizon": 3, "batch_size": 256}
"""The authors' settings, which both have."""
SPACES = {"observation": 3, "actions": 1}
"""Pendulum's."""
PARTS = {
    "plan": ("steps in the model", "proposals", "drawing and fitting", "values behind, rest"),
    "update": ("model, forward", "policy, forward", "backward", "optimisers", "rest"),
}
"""What gymlab's time is told apart by."""
GOAL = 1.5
"""The authors' time divided by gymlab's."""


def step_job(library: str, size: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """A job that times plans and updates at one size."""
    named = size if library == "gymlab" else SIZES[size]
    return {"task": "tdmpc", "library": library, **WORK, **SPACES, "warmup": 2, **settings, "size": named, "seed": seed}


def measure(plan: Plan, sizes: list[str], settings: dict[str, Any], *, beside_peer: bool) -> Section:
    """Each size, with the authors' program where there is one, interleaved."""
    lines, shares, checks, failed = [], [], [], []
    libraries = ["gymlab", PEER] if beside_peer else ["gymlab"]
    data: dict[str, Any] = {**settings, **WORK}
    for size in sizes:
        measured = plan.interleave(
            f"tdmpc {size}", {library: partial(step_job, library, size, settings) for library in libraries}
        )
        ours, figures = measured["gymlab"], {}
        for kind, parts in PARTS.items():
            line = [size, kind, number(ours.median(kind))]
            figures[kind] = {name: repeats.median(kind) for name, repeats in measured.items()}
            if beside_peer:
                faster = median_ratio(measured[PEER], ours, kind)
                line += [number(measured[PEER].median(kind)), times(faster)]
                checks.append(Check(f"{size}: authors' / gymlab's, seconds: {kind}", faster, GOAL))
            lines.append(line)
            spent = [f"{part} {percent(ours.median(f'{kind}/{part}'))}" for part in parts]
            shares.append([size, kind, ", ".join(spent)])
        data[size] = figures | {
            "parameters": {name: repeats.median("parameters") for name, repeats in measured.items()}
        }
        failed += failures(measured)
    title = (
        "TD-MPC2: seconds of a plan ({samples} sequences, {iterations} rounds, {horizon} steps, one environment) and of an update "
        "({batch_size} sequences of {horizon} steps), {threads} thread(s), {precision}"
    ).format(**data)
    columns = ["size", "", "gymlab s", *(["authors s", "faster"] if beside_peer else [])]
    tables = [
        Table(title, columns, lines, note(data, sizes, failed)),
        Table("Where gymlab's time goes", ["size", "", "shares"], shares, "Gradients of all parts are in backward."),
    ]
    return Section("steps", tables, data, checks)


def note(data: dict[str, Any], sizes: list[str], failed: list[str]) -> str:
    """Parameters of both, and what went wrong."""
    counts = [
        f"{size}: " + " and ".join(number(count) for count in data[size]["parameters"].values()) for size in sizes
    ]
    return " ".join([f"Learned parameters: {'; '.join(counts)}.", *dict.fromkeys(failed)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--size", action="append", choices=list(SIZES), help="only this size; may repeat (default 1m, 5m)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    parser.add_argument("--steps", type=int, default=8, help="timed plans and updates in a repeat (default 8)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of both (default 1)")
    parser.add_argument(
        "--precision", default="32-true", choices=["32-true", "bf16-mixed"], help="gymlab's precision (default 32-true)"
    )
    peer_source_arguments(parser, REPOSITORY, PEER_DIRECTORY)
    show_arguments(parser)


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when `--check` is given and a goal was missed."""
    source: Path | None = arguments.peer_source
    check_peer_source(source, REPOSITORY, PEER_FILE)
    settings = {"threads": arguments.threads, "precision": arguments.precision, "repeats": arguments.steps}
    command = (
        f"gymlab bench tdmpc --repeats {arguments.repeats} --steps {arguments.steps} --threads {arguments.threads}"
    )
    with status(quiet=arguments.json) as say:
        plan = replace(Plan(repeats=arguments.repeats, timeout=1200.0), say=say)
        if source is not None:
            settings["source"] = str(source.absolute())
            python = peer_python(arguments.peer_env, PEER_PACKAGES, say)
            plan = replace(plan, worker=peer_worker(PEER, python, PEER_SCRIPT))
        section = measure(plan, arguments.size or ["1m", "5m"], settings, beside_peer=source is not None)
    return show(BenchReport("tdmpc", command, [section]), arguments)
