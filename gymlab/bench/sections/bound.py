"""How near gymlab comes to its own parts: vector env, policy and update, each alone, and nothing else done."""

from __future__ import annotations

from functools import partial
from typing import Any

from gymlab.bench.measure import failures
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number, percent, scaled
from gymlab.bench.settings import Setting

GOAL = 0.8
KEYS = (
    "env_seconds",
    "policy_seconds",
    "update_seconds",
    "bound_steps_per_second",
    "steps_per_second",
    "share",
    "cpu_share",
)


def parts_job(
    setting: Setting, seconds: float, options: dict[str, Any], seed: int, measure: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A job that times gymlab's parts; `measure` names some of them, none means all and a training beside them."""
    return {
        "task": "parts",
        "library": "gymlab",
        "threads": 1,
        "options": options,
        "setting": setting.to_dict(),
        "seconds": seconds,
        "seed": seed,
        "measure": list(measure),
    }


def measure(plan: Plan) -> Section:
    """Parts and training of every setting, in the same processes."""
    lines, checks, failed, data = [], [], [], {}
    for setting in plan.settings:
        job = partial(parts_job, setting, plan.seconds / 2, {})
        repeats = plan.interleave(f"bound {setting.name}", {setting.name: job})[setting.name]
        medians = {key: repeats.median(key) for key in KEYS}
        data[setting.name] = medians | {"repeats": repeats.results, "errors": repeats.errors}
        failed += failures({setting.name: repeats})
        milliseconds = [scaled(medians[key], 1e3) for key in KEYS[:3]]
        lines.append(
            [
                setting.name,
                *map(number, milliseconds),
                number(medians["bound_steps_per_second"]),
                number(medians["steps_per_second"]),
                percent(medians["share"]),
                percent(medians["cpu_share"]),
            ]
        )
        checks.append(Check(f"{setting.name}: share of the bound", medians["share"], GOAL))
    columns = [
        "setting",
        "env ms",
        "policy ms",
        "update ms",
        "bound, steps/s",
        "gymlab, steps/s",
        "share",
        "by CPU time",
    ]
    table = Table("The bound: gymlab's own parts for one rollout, each alone", columns, lines, "; ".join(failed))
    return Section("bound", [table], data, checks)
