"""What the engine itself costs: the share of a training's time outside environment, policy and update."""

from __future__ import annotations

from functools import partial
from typing import Any

from gymlab.bench.measure import failures
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number, percent
from gymlab.bench.settings import Setting

GOAL = 0.1
SHARES = ("env", "policy", "update", "outside")


def overhead_job(setting: Setting, env_steps: int, seed: int) -> dict[str, Any]:
    """A job that times the parts of a training within it."""
    return {
        "task": "overhead",
        "library": "gymlab",
        "threads": 1,
        "options": {},
        "setting": setting.to_dict(),
        "env_steps": env_steps,
        "seed": seed,
    }


def measure(plan: Plan) -> Section:
    """Shares of every setting's training."""
    lines, checks, failed, data = [], [], [], {}
    for setting in plan.settings:
        job = partial(overhead_job, setting, setting.steps_for(plan.seconds / 2))
        repeats = plan.interleave(f"overhead {setting.name}", {setting.name: job})[setting.name]
        medians = {key: repeats.median(key) for key in (*SHARES, "steps_per_second")}
        data[setting.name] = medians | {"repeats": repeats.results, "errors": repeats.errors}
        failed += failures({setting.name: repeats})
        lines.append([setting.name, *(percent(medians[key]) for key in SHARES), number(medians["steps_per_second"])])
        checks.append(Check(f"{setting.name}: share outside the parts", medians["outside"], GOAL, at_least=False))
    table = Table(
        "Overhead: where a training's time goes, with logging and alerts on",
        ["setting", "env", "policy", "update", "everything else", "steps/s"],
        lines,
        "; ".join(failed),
    )
    return Section("overhead", [table], data, checks)
