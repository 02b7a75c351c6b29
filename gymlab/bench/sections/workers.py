"""Slow environments: workers with one or several of them, all at once or in halves by turns, and what auto takes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gymlab.bench.measure import failures
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number, times

REFERENCE = "one worker each"
AUTO = "auto"
GOAL = 0.85
"""What auto must reach of the best way, for each kind of environment and policy."""


MODELS = {"small MLP": "mlp", "CNN": "cnn_nature"}
"""Policies by what they are called: one that takes as long for half of the environments, and one that takes half as long."""
KINDS = {f"{what}, {model}": (what == "wait", MODELS[model]) for what in ("wait", "compute") for model in MODELS}
"""Whether environments wait, and the policy that acts."""


def ways(num_envs: int, cores: int) -> dict[str, dict[str, Any]]:
    """Fields of the config by way: in this process; one worker each or few, at once or by turns; as gymlab chooses."""
    few = min(num_envs, cores + cores % 2)
    at_once, by_turns = (
        {"vectorization_mode": "async", "double_buffer": turns, "env_workers": few} for turns in (False, True)
    )
    return {
        "in this process": {"vectorization_mode": "sync"},
        REFERENCE: at_once | {"env_workers": num_envs},
        "one worker each, by turns": by_turns | {"env_workers": num_envs},
        "several a worker": at_once,
        "several a worker, by turns": by_turns,
        AUTO: {},
    }


def ways_job(num_envs: int, milliseconds: float, kind: str, repeats: int, seed: int) -> dict[str, Any]:
    """A job that times every way for one kind, turn by turn."""
    waits, model_id = KINDS[kind]
    sizes = {"num_envs": num_envs, "milliseconds": milliseconds, "seed": seed, "repeats": repeats}
    return {"task": "ways", "threads": 1, **sizes, "waits": waits, "model_id": model_id}


def measure(plan: Plan, num_envs: int, milliseconds: float) -> Section:
    """Every way for every kind."""
    jobs = {kind: partial(ways_job, num_envs, milliseconds, kind, plan.repeats) for kind in KINDS}
    measured = plan.interleave("workers", jobs, repeats=1)
    found = {kind: repeats.results[0] for kind, repeats in measured.items()}
    tables = [_table(what, found, num_envs, milliseconds, plan.repeats) for what in ("wait", "compute")]
    checks = [
        Check(f"{kind}: auto / best way", share_of_best(figures), GOAL)
        for kind, figures in found.items()
        if figures is not None
    ]
    data = {"num_envs": num_envs, "milliseconds": milliseconds, "kinds": found, "failures": failures(measured)}
    return Section("workers", tables, data, checks)


def _table(
    what: str, found: Mapping[str, dict[str, Any] | None], num_envs: int, milliseconds: float, repeats: int
) -> Table:
    mine = [found[f"{what}, {model}"] for model in MODELS]
    rows = [[way, *(cell for figures in mine for cell in _cells(figures, way))] for way in ways(num_envs, cores=2)]
    title = f"{num_envs} environments that {what} for {milliseconds:g} ms a step: ms a row of them"
    columns = ["way", *(column for model in MODELS for column in (f"{model}, ms", "ratio"))]
    notes = [f"Ratios to {REFERENCE}, medians of {repeats} turns."]
    notes += [f"{model}: {_choice(figures)}." for model, figures in zip(MODELS, mine, strict=True) if figures]
    return Table(title, columns, rows, " ".join(notes))


def ratio(found: Mapping[str, Sequence[float]], way: str, to: str) -> float:
    """How many times as quick a way is, as the median over turns."""
    return statistics.median(theirs / mine for mine, theirs in zip(found[way], found[to], strict=True))


def share_of_best(found: Mapping[str, Sequence[float]]) -> float:
    """The speed of auto as a share of the best way's."""
    return min(ratio(found, AUTO, way) for way in ways(2, 2) if way != AUTO)


def _cells(found: Mapping[str, Sequence[float]] | None, way: str) -> list[str]:
    if found is None:
        return [number(None)] * 2
    return [number(1000 * statistics.median(found[way])), times(ratio(found, way, REFERENCE))]


def _choice(found: Mapping[str, Sequence[float]]) -> str:
    workers, whole, half = int(found["auto workers"][0]), *(1000 * found[key][0] for key in ("policy", "half policy"))
    taken = f"{workers} workers" if workers else "this process"
    turns = ", by turns" if found["auto by turns"][0] else ""
    return f"the policy takes {number(whole)} ms for all and {number(half)} for a half, auto took {taken}{turns}"
