"""`gymlab bench envs`: how fast vector environments step, against Gymnasium's SyncVectorEnv.

Section native lets our numpy environments take turns with Gymnasium's at 64 and 1,024 copies and holds the ratio to its
goals; section backends times every backend of one environment at several numbers of copies.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gymlab.bench.measure import failures, median_ratio
from gymlab.bench.plan import Plan
from gymlab.bench.report import BenchReport, Section, Table, number, times
from gymlab.bench.sections import native
from gymlab.bench.show import comma_integers, comma_list, show, show_arguments, status
from gymlab.errors import GymlabError

HELP = "step rates of vector environments: native against Gymnasium's, and by backend and number"
SECTIONS = ("native", "backends")
REFERENCE = "gymnasium"
BACKENDS = ("native", "sync", "async")
DEFAULT_ENVIRONMENT = "CartPole-v1"
DEFAULT_COUNTS = (1, 8, 64, 512)
MOST_PROCESSES = 64
"""The async backend may have a process for each environment; more than this are not started."""


def steps_job(env_id: str, num_envs: int, seconds: float, backend: str, seed: int) -> dict[str, Any]:
    """A job that measures one backend."""
    return {
        "task": "steps",
        "threads": 1,
        "env_id": env_id,
        "num_envs": num_envs,
        "backend": backend,
        "seconds": seconds,
        "seed": seed,
    }


def measure(plan: Plan, env_id: str, counts: Sequence[int], backends: Sequence[str]) -> Section:
    """Every backend at every number of environments."""
    lines, failed = [], []
    data: dict[str, Any] = {}
    for count in counts:
        names = [REFERENCE, *(name for name in backends if name != "async" or count <= MOST_PROCESSES)]
        jobs = {name: partial(steps_job, env_id, count, plan.seconds, name) for name in names}
        measured = plan.interleave(f"{env_id} x {count}", jobs)
        data[str(count)] = {
            name: {
                "steps_per_second": repeats.median("steps_per_second"),
                "ratio": median_ratio(repeats, measured[REFERENCE], "steps_per_second"),
                "errors": repeats.errors,
            }
            for name, repeats in measured.items()
        }
        failed += failures(measured)
        lines.append([str(count), *(cell(data[str(count)].get(name)) for name in (REFERENCE, *backends))])
    columns = ["envs", f"{REFERENCE} sync", *(f"gymlab {backend}" for backend in backends)]
    table = Table(
        f"{env_id}: environment steps/s with random actions", columns, lines, "; ".join(dict.fromkeys(failed))
    )
    return Section("backends", [table], {"env_id": env_id, "counts": data})


def cell(figures: dict[str, Any] | None) -> str:
    """A rate with its ratio; a dash for what was not measured."""
    if figures is None or figures["steps_per_second"] is None:
        return "–"
    return f"{number(figures['steps_per_second'])} ({times(figures['ratio'])})"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "env_id",
        nargs="?",
        help=f"environment (default: all that are held to a goal, and the backends of {DEFAULT_ENVIRONMENT})",
    )
    parser.add_argument("--section", action="append", choices=SECTIONS, help="only this section; may be repeated")
    parser.add_argument("--num-envs", type=comma_integers, help="numbers, by comma (default 64,1024 and 1,8,64,512)")
    parser.add_argument("--backends", type=comma_list, default=list(BACKENDS), help="native, sync, async, by comma")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of stepping in a repeat")
    show_arguments(parser)


def sections_of(arguments: argparse.Namespace) -> list[str]:
    """What is measured: the backends of any environment, the race of those that have a native version of ours."""
    chosen = arguments.section or SECTIONS
    sections = [name for name in SECTIONS if name in chosen and (name == "backends" or has_native(arguments.env_id))]
    if not sections:
        raise GymlabError(f"{arguments.env_id} has no native version to race; --section backends measures it.")
    return sections


def has_native(env_id: str | None) -> bool:
    """Whether there is something to race: no id stands for all of them."""
    from gymlab.envs.families import family_of
    from gymlab.envs.native import NATIVE

    return env_id is None or family_of(env_id).resolve(env_id) in NATIVE


def run_command(arguments: argparse.Namespace) -> int:
    """Run and print; 1 when `--check` is given and a goal was missed."""
    plan = Plan(repeats=arguments.repeats, seconds=arguments.seconds)
    env_id, counts, sections = arguments.env_id, arguments.num_envs, []
    with status(quiet=arguments.json) as say:
        plan = replace(plan, say=say)
        for name in sections_of(arguments):
            if name == "native":
                env_ids = native.ENVIRONMENTS if env_id is None else [env_id]
                sections.append(native.measure(plan, env_ids, counts or tuple(native.GOALS)))
            else:
                shown = env_id or DEFAULT_ENVIRONMENT
                sections.append(measure(plan, shown, counts or DEFAULT_COUNTS, arguments.backends))
    return show(BenchReport("envs", command_line(arguments), sections), arguments)


def command_line(arguments: argparse.Namespace) -> str:
    """The command that repeats this report."""
    words = ["gymlab bench envs"]
    words += [arguments.env_id] if arguments.env_id else []
    words += [f"--section {name}" for name in arguments.section or ()]
    words += [f"--num-envs {','.join(map(str, arguments.num_envs))}"] if arguments.num_envs else []
    words += [f"--backends {','.join(arguments.backends)}"] if arguments.backends != list(BACKENDS) else []
    return " ".join([*words, f"--repeats {arguments.repeats}", f"--seconds {arguments.seconds:g}"])
