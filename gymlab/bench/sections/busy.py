"""A busy machine: one other spinning process on each core. Thread pools that wait by spinning collapse here."""

from __future__ import annotations

import os
from functools import partial

from gymlab.bench.launch import busy_cores, training_job
from gymlab.bench.measure import failures, median_ratio
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number, times
from gymlab.bench.settings import REFERENCE, Contender

GOAL = 0.8

ROWS = (
    Contender("gymlab", "gymlab", threads=None),
    Contender("gymlab, one thread", "gymlab", threads=1),
    Contender(f"{REFERENCE}, default threads", REFERENCE, threads=None),
    Contender(f"{REFERENCE}, one thread", REFERENCE, threads=1),
)
BASELINE = {"gymlab": "gymlab, one thread", REFERENCE: f"{REFERENCE}, one thread"}


def measure(plan: Plan) -> Section:
    """Default threads against one thread of the same library, both on the busy machine."""
    setting = plan.settings[0]
    cores = os.cpu_count() or 1
    env_steps = setting.steps_for(plan.seconds / 2)
    limit = plan.seconds * 4
    jobs = {row.name: partial(training_job, row, setting, env_steps, max_seconds=limit) for row in ROWS}
    with busy_cores(cores):
        measured = plan.interleave(f"busy machine ({cores} other processes)", jobs)
    shares = {
        row.name: median_ratio(measured[row.name], measured[BASELINE[row.library]], "steps_per_second") for row in ROWS
    }
    lines = [[row.name, number(measured[row.name].median("steps_per_second")), times(shares[row.name])] for row in ROWS]
    table = Table(
        f"Busy machine: {cores} other spinning processes on {cores} cores, {setting.describe()}",
        ["library", "steps/s", "share of its one thread"],
        lines,
        "; ".join(failures(measured)),
    )
    data = {
        "cores": cores,
        "setting": setting.name,
        "peers": {
            name: {
                "steps_per_second": repeats.median("steps_per_second"),
                "share_of_one_thread": shares[name],
                "repeats": repeats.results,
                "errors": repeats.errors,
            }
            for name, repeats in measured.items()
        },
    }
    check = Check("busy machine: gymlab's default threads / one thread", shares["gymlab"], GOAL)
    return Section("busy", [table], data, [check])
