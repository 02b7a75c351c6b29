"""`gymlab bench convolutions`: 3x3 convolutions by gymlab's kernel and by torch, layer by layer."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from gymlab.bench.measure import failures
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number, times
from gymlab.bench.show import run_turns, turn_arguments

HELP = "3x3 convolutions by gymlab's kernel and by torch"
LAYERS: dict[str, tuple[int, int, int]] = {
    "32 channels, 64x64": (5, 32, 64),
    "64 channels, 64x64": (5, 64, 64),
    "64 channels, 32x32": (5, 64, 32),
    "64 channels, 16x16": (5, 64, 16),
    "128 channels, 32x32": (5, 128, 32),
    "128 channels, 16x16": (5, 128, 16),
    "32 channels, 64x64, 100 at once": (100, 32, 64),
}
"""Pictures, channels in and out, side. Five pictures unless said otherwise: what Δ-IRIS dreams at once in its own bench."""
COLUMNS = ["layer", "torch", "kernel", "faster"]
FIGURES = ("torch", "kernel", "ratio")
WAYS = {"forward": "forwards", "weights": "gradients of the weights"}
GOAL = 1.0
"""Torch's time divided by the kernel's, at the layer that gains least."""


def layer_job(layer: tuple[int, int, int], threads: int, seconds: float, seed: int) -> dict[str, Any]:
    """A job that times both, turn by turn."""
    return {"task": "convolutions", "layer": layer, "threads": threads, "seconds": seconds, "seed": seed}


def measure(plan: Plan, threads: int) -> Section:
    """Every layer in both directions."""
    jobs = {name: partial(layer_job, layer, threads, plan.seconds) for name, layer in LAYERS.items()}
    measured = plan.interleave("convolutions", jobs)
    data = {
        name: {f"{way}/{figure}": repeats.median(f"{way}/{figure}") for way in WAYS for figure in FIGURES}
        for name, repeats in measured.items()
    }
    tables, checks = [], []
    for way, told in WAYS.items():
        rows = {name: [found[f"{way}/{figure}"] for figure in FIGURES] for name, found in data.items()}
        lines = [
            [name, number(torchs), number(kernels), times(ratio)] for name, (torchs, kernels, ratio) in rows.items()
        ]
        tables.append(Table(f"3x3 convolutions, {told}: milliseconds, {threads} thread(s)", COLUMNS, lines))
        ratios = [ratio for *_, ratio in rows.values() if ratio is not None]
        least = min(ratios) if len(ratios) == len(rows) else None
        checks.append(Check(f"{told}: torch / kernel, least", least, GOAL))
    tables[-1] = replace(tables[-1], note=" ".join(failures(measured)))
    return Section("convolutions", tables, {"threads": threads, "layers": data}, checks)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    turn_arguments(parser, "layer in a repeat")


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when `--check` is given and a goal was missed."""
    return run_turns("convolutions", measure, arguments)
