"""Train a run anew from its own settings and the changes that were made to it, and say whether the same came out."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_env_kwargs, add_json, add_plugins, add_runs_directory
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.repeat import Repetition

USAGE = "gymlab repeat RUN [options]"
EXAMPLES = """  gymlab repeat @last                          the newest run, again as ID-repeat
  gymlab repeat my-run --run-id my-run-again
  gymlab repeat /media/disk/runs/my-run        a run that lies elsewhere
  gymlab repeat my-run --plugin my_environments
  gymlab repeat my-run --env-kwargs config_path=my_maze.cfg
  gymlab repeat my-run --json | jq .equal"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("reference", nargs="?", metavar="RUN", help="run: @last, ID or its directory")
    parser.add_argument("--run-id", metavar="ID", help="name of the new run (default: ID-repeat)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print the report at the end only")
    add_env_kwargs(parser)
    add_plugins(parser)
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train, compare, and say it; 1 when something differs."""
    if arguments.reference is None:
        raise GymlabError(_no_run(arguments.run_id))
    if "=" in arguments.reference:
        raise GymlabError(
            f"{arguments.reference!r} is no run: a repetition has the settings of its run. For others, train: "
            f"gymlab train EXPERIMENT {arguments.reference}"
        )
    from gymlab.api import repeat
    from gymlab.cli.output import output_kept_clean, show_json
    from gymlab.metrics.redact import redact

    with output_kept_clean(arguments.json):
        repetition = repeat(
            arguments.reference,
            runs_dir=arguments.runs_dir,
            run_id=arguments.run_id,
            env_kwargs=arguments.env_kwargs,
            plugins=arguments.plugin,
            quiet=arguments.quiet,
            command=shlex.join(redact(["gymlab", "repeat", *arguments.argv])),
        )
    if not repetition.compared:
        return 0  # a further process of a distributed training
    if arguments.json:
        show_json(as_json(repetition))
    else:
        _show(repetition)
    return 0 if repetition.equal else 1


def _no_run(run_id: str | None) -> str:
    if run_id is None:
        return f"Which run? Usage: {USAGE}, e.g. gymlab repeat @last"
    return (
        f"--run-id {run_id} names the new run here; RUN, the run to repeat, is missing. "
        f"To repeat {run_id} itself: {shlex.join(['gymlab', 'repeat', run_id])}"
    )


def as_json(repetition: Repetition) -> dict[str, Any]:
    """A repetition in plain values."""
    from gymlab.cli.train import run_summary

    return {
        "repeats": repetition.of.id,
        "equal": repetition.equal,
        "difference": repetition.difference,
        "compared": repetition.compared,
        "circumstances": list(repetition.circumstances),
    } | run_summary(repetition.run)


def _show(repetition: Repetition) -> None:
    from rich.text import Text

    from gymlab.cli.output import screen

    of, made, console = repetition.of.id, repetition.run.id, screen()
    if repetition.equal:
        told = Text.assemble((f"{made} equals {of}", "bold green"), f", bit for bit: {repetition.compared}.")
        console.print(told, soft_wrap=True)
        return
    told = Text.assemble((f"{made} differs from {of}", "bold yellow"), f": {repetition.difference}.")
    console.print(told, soft_wrap=True)
    for circumstance in repetition.circumstances:
        console.print(Text(f"  {circumstance}"), soft_wrap=True)
    if not repetition.circumstances:
        console.print(
            Text(
                "  Versions, processor, cores and kernels are as they were. A module of yours may have changed, or the environment "
                "does not repeat itself: gymlab env check tells."
            ),
            soft_wrap=True,
        )
