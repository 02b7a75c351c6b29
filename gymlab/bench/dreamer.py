"""`gymlab bench dreamer`: seconds and memory of a DreamerV3 update, beside sheeprl's of the same architecture and size."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gymlab.bench.measure import Repeats, failures, median_ratio
from gymlab.bench.peer_environment import peer_python, peer_worker
from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport, Check, Section, Table, number, percent, scaled, times
from gymlab.bench.show import show, show_arguments, status

HELP = "an update of DreamerV3 against sheeprl's, on vectors and on images"
PEER = "sheeprl"
PEER_VERSION = "0.8.4"
"""The newest release; its `dreamer_v3_5` is the architecture of the Nature paper, as gymlab's `dreamer_v3`."""
PEER_DIRECTORY = Path(".venv-sheeprl")
PEER_SCRIPT = Path(__file__).parent / "peers" / "sheeprl_peer.py"
OBSERVATIONS: dict[str, dict[str, Any]] = {
    "vector": {"observation": [4], "image": False, "actions": 2},
    "image": {"observation": [3, 64, 64], "image": True, "actions": 2},
}
"""Shape of one observation and number of actions, by what is shown."""
UPDATE = {"size": "1m", "batch_size": 16, "length": 64, "horizon": 15, "warmup": 2}
"""16 sequences of 64 steps; every state of them is imagined on for 15."""
SECONDS, MEMORY, PARAMETERS = "seconds", "peak_bytes", "parameters"
CPU_SECONDS = "cpu_seconds"
"""Of all threads, for the JSON report: threads that wait for each other may count too."""
SPEED_GOAL = 2.0
"""sheeprl's time divided by gymlab's."""
MEMORY_GOAL = 1.0
"""gymlab's peak memory divided by sheeprl's."""
PARTS = ("recurrent loop", "encoder, decoder, heads", "dreams", "losses of dreams", "backward", "optimiser", "rest")
"""What gymlab's time is told apart by."""


def update_job(library: str, observation: dict[str, Any], threads: int, updates: int, seed: int) -> dict[str, Any]:
    """A job that times updates on one kind of observation."""
    sizes = {**UPDATE, **observation, "updates": updates, "seed": seed}
    return {"task": "dreamer", "library": library, "threads": threads, **sizes}


def measure(plan: Plan, kinds: list[str], threads: int, updates: int) -> Section:
    """Both libraries on each kind of observation, interleaved."""
    lines, shares, checks, failed = [], [], [], []
    data: dict[str, Any] = {"threads": threads, **UPDATE}
    for kind in kinds:
        jobs = {
            library: partial(update_job, library, OBSERVATIONS[kind], threads, updates) for library in ("gymlab", PEER)
        }
        measured = plan.interleave(f"dreamer {kind}", jobs)
        ours, theirs = measured["gymlab"], measured[PEER]
        faster, larger = median_ratio(theirs, ours, SECONDS), median_ratio(ours, theirs, MEMORY)
        data[kind] = {name: figures(repeats) for name, repeats in measured.items()} | {"times_faster": faster}
        lines.append([kind, *_seconds(ours, theirs), times(faster), *_megabytes(ours, theirs), times(larger)])
        shares.append([kind, *(percent(ours.median(f"share/{part}")) for part in PARTS)])
        checks.append(Check(f"{kind}: sheeprl / gymlab, seconds an update", faster, SPEED_GOAL))
        checks.append(Check(f"{kind}: gymlab / sheeprl, peak memory", larger, MEMORY_GOAL, at_least=False))
        failed += failures(measured)
    title = (
        "DreamerV3 {size}: seconds an update of {batch_size} sequences of {length} steps takes, every state imagined "
        "on for {horizon}, {threads} thread(s), and peak memory of the process in MB"
    ).format(**data)
    columns = ["observation", "gymlab s", "sheeprl s", "faster", "gymlab MB", "sheeprl MB", "memory"]
    spent = Table(
        "Where gymlab's time goes", ["observation", *PARTS], shares, "Gradients of all parts are in backward."
    )
    return Section("update", [Table(title, columns, lines, note(data, failed)), spent], data, checks)


def figures(repeats: Repeats) -> dict[str, Any]:
    """Medians of what one library measured, for the JSON report."""
    return {key: repeats.median(key) for key in (SECONDS, CPU_SECONDS, MEMORY, PARAMETERS)} | {"errors": repeats.errors}


def note(data: dict[str, Any], failed: list[str]) -> str:
    """What differs between the two, and what went wrong."""
    counts = [
        f"{kind}: {number(data[kind]['gymlab'][PARAMETERS])} and {number(data[kind][PEER][PARAMETERS])}"
        for kind in OBSERVATIONS
        if kind in data
    ]
    said = [f"Learned parameters, gymlab and sheeprl {PEER_VERSION} (dreamer_v3_5): {'; '.join(counts)}."]
    return " ".join([*said, *dict.fromkeys(failed)])


def _seconds(*libraries: Repeats) -> list[str]:
    return [number(repeats.median(SECONDS)) for repeats in libraries]


def _megabytes(*libraries: Repeats) -> list[str]:
    return [number(scaled(repeats.median(MEMORY), 1e-6)) for repeats in libraries]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--observation", action="append", choices=list(OBSERVATIONS), help="only this kind; may repeat")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    parser.add_argument("--updates", type=int, default=5, help="timed updates in a repeat (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="torch threads of both (default 2)")
    parser.add_argument(
        "--peer-env",
        type=Path,
        default=PEER_DIRECTORY,
        metavar="DIR",
        help=f"virtual environment of sheeprl, made when missing (default {PEER_DIRECTORY})",
    )
    show_arguments(parser)


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when `--check` is given and a goal was missed."""
    kinds = arguments.observation or list(OBSERVATIONS)
    command = f"gymlab bench dreamer --repeats {arguments.repeats} --updates {arguments.updates} --threads {arguments.threads}"
    with status(quiet=arguments.json) as say:
        python = peer_python(arguments.peer_env, [f"{PEER}=={PEER_VERSION}"], say)
        worker = peer_worker(PEER, python, PEER_SCRIPT)
        plan = replace(Plan(repeats=arguments.repeats, timeout=1200.0), worker=worker, say=say)
        section = measure(plan, kinds, arguments.threads, arguments.updates)
    return show(BenchReport("dreamer", command, [section]), arguments)
