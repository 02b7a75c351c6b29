"""Native environments against Gymnasium's SyncVectorEnv, turn by turn in one process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gymlab.bench.measure import Repeats, failures, median_ratio, ratios
from gymlab.bench.plan import Plan
from gymlab.bench.report import Check, Section, Table, number, times

ENVIRONMENTS = (
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Acrobot-v1",
    "Pendulum-v1",
    "FrozenLake-v1",
    "Taxi-v4",
    "CliffWalking-v1",
)
GOALS = {64: 8.0, 1024: 50.0}
"""How many times as fast as Gymnasium's, by the number of environments."""
RATE = "steps_per_second"
NOTE = (
    "Steps/s of all environments together with random actions, episode statistics kept by both; "
    "the ratio is the median of the ratios of single turns."
)


def race_job(env_id: str, num_envs: int, seconds: float, repeats: int, seed: int) -> dict[str, Any]:
    """A job that lets the two take turns."""
    return {
        "task": "race",
        "threads": 1,
        "env_id": env_id,
        "num_envs": num_envs,
        "seconds": seconds,
        "repeats": repeats,
        "seed": seed,
    }


def measure(plan: Plan, env_ids: Sequence[str] = ENVIRONMENTS, counts: Sequence[int] = tuple(GOALS)) -> Section:
    """Every environment at every number of copies."""
    lines, checks, failed = [], [], []
    data: dict[str, Any] = {}
    for env_id in env_ids:
        for count in counts:
            name = f"{env_id} x {count}"
            job = partial(race_job, env_id, count, plan.seconds, plan.repeats)
            answer = plan.interleave(name, {name: job}, repeats=1)
            failed += failures(answer)
            result = answer[name].results[0] or {"native": [], "gymnasium": []}
            native, reference = (
                Repeats([{RATE: rate} for rate in result[contender]]) for contender in ("native", "gymnasium")
            )
            ratio, turns = median_ratio(native, reference, RATE), ratios(native, reference, RATE)
            data[name] = {"native": native.median(RATE), "gymnasium": reference.median(RATE), "ratio": ratio}
            data[name] |= {"ratios": turns, "errors": answer[name].errors}
            spread = f"{number(min(turns))} to {number(max(turns))}" if turns else "–"
            rates = (number(data[name][contender]) for contender in ("native", "gymnasium"))
            lines.append([env_id, str(count), *rates, times(ratio), spread])
            if count in GOALS:
                checks.append(Check(f"{name}, ratio", ratio, GOALS[count]))
    columns = ["environment", "envs", "native", "gymnasium sync", "ratio", "range"]
    note = "; ".join([NOTE, *failed])
    return Section(
        "native", [Table("Native environments against Gymnasium's SyncVectorEnv", columns, lines, note)], data, checks
    )
