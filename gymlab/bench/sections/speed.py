"""Environment steps a second: gymlab and the peers, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gymlab.bench.launch import training_job
from gymlab.bench.measure import Repeats, failures, fastest, median_ratio, ratios
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number, times
from gymlab.bench.settings import REFERENCE, Contender, Setting, contenders

COLUMNS = ["library", "threads", "steps/s", "steps/CPU s", "ratio", "CPU ratio", "range of ratio"]


def measure(plan: Plan) -> Section:
    """Compare on every setting of the plan."""
    rows = contenders(plan.peers, plan.backends)
    tables, checks, data = [], [], {}
    for setting in plan.settings:
        measured = compare(plan, setting, rows)
        data[setting.name] = {"setting": setting.to_dict(), "peers": figures(measured)}
        tables.append(table(setting, rows, measured))
        checks += goals(setting, rows, measured)
    return Section("speed", tables, data, checks)


def compare(plan: Plan, setting: Setting, rows: Sequence[Contender]) -> dict[str, Repeats]:
    """Train the same number of steps with every contender, interleaved."""
    env_steps = setting.steps_for(plan.seconds)
    jobs = {row.name: partial(training_job, row, setting, env_steps) for row in rows}
    return plan.interleave(f"speed {setting.name}", jobs)


def figures(measured: dict[str, Repeats]) -> dict[str, Any]:
    """Medians, ratios to the reference and every single repeat."""
    reference = measured[REFERENCE]
    return {
        name: {
            "steps_per_second": repeats.median("steps_per_second"),
            "steps_per_cpu_second": repeats.median("steps_per_cpu_second"),
            "ratio": median_ratio(repeats, reference, "steps_per_second"),
            "cpu_ratio": median_ratio(repeats, reference, "steps_per_cpu_second"),
            "repeats": repeats.results,
            "errors": repeats.errors,
        }
        for name, repeats in measured.items()
    }


def table(setting: Setting, rows: Sequence[Contender], measured: dict[str, Repeats]) -> Table:
    """One line a contender."""
    reference = measured[REFERENCE]
    lines = []
    for row in rows:
        repeats = measured[row.name]
        paired = ratios(repeats, reference, "steps_per_second")
        lines.append(
            [
                row.name,
                "default" if row.threads is None else str(row.threads),
                number(repeats.median("steps_per_second")),
                number(repeats.median("steps_per_cpu_second")),
                times(median_ratio(repeats, reference, "steps_per_second")),
                times(median_ratio(repeats, reference, "steps_per_cpu_second")),
                f"{min(paired):.2f} to {max(paired):.2f}" if paired else "–",
            ]
        )
    title = f"{setting.env_id}, PPO, {setting.describe()}"
    note = f"Ratios are to {REFERENCE} at one thread, in the same repeat."
    return Table(title, COLUMNS, lines, "; ".join([note, *failures(measured)]))


def goals(setting: Setting, rows: Sequence[Contender], measured: dict[str, Repeats]) -> list[Check]:
    """What gymlab is held to on this setting."""
    reference, key = measured[REFERENCE], "steps_per_second"
    checks = []
    if setting.goal is not None:
        ratio = median_ratio(measured["gymlab"], reference, key)
        checks.append(Check(f"{setting.name}: gymlab / {REFERENCE}", ratio, setting.goal))
    if setting.fastest_goal is not None:
        best = fastest(measured, [row.name for row in rows if row.library == "gymlab"], key)
        ratio = None if best is None else median_ratio(measured[best], reference, key)
        checks.append(Check(f"{setting.name}: fastest option ({best}) / {REFERENCE}", ratio, setting.fastest_goal))
    return checks
