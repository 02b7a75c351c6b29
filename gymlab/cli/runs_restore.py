"""Bring a run back from the trash; without an id, show what is there."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_json, add_runs_directory

if TYPE_CHECKING:
    from gymlab.engine.prune import Trashed

USAGE = "gymlab runs restore [ID] [options]"
EXAMPLES = """  gymlab runs restore                  what is in the trash
  gymlab runs restore my-run"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run_id", nargs="?", metavar="ID", help="the run to bring back")
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Restore the run, or list the trash."""
    from gymlab.cli.output import screen, show_json
    from gymlab.engine.prune import restore, trashed_runs
    from gymlab.engine.run import runs_directory

    runs_dir = runs_directory(arguments.runs_dir)
    if arguments.run_id is not None:
        restored = restore(runs_dir, arguments.run_id)
        if arguments.json:
            show_json({"run": restored.id, "dir": restored.dir})
        else:
            screen().print(f"{restored.dir} is back")
        return 0
    trashed = trashed_runs(runs_dir)
    if arguments.json:
        show_json({"trash": [vars(item) for item in trashed]})
    elif trashed:
        screen().print(trash_table(trashed))
    else:
        screen().print(f"the trash of {runs_dir} is empty")
    return 0


def trash_table(trashed: list[Trashed]) -> Any:
    """What is in the trash."""
    from gymlab.cli.output import size, table

    made = table("in the trash", "run", "since", "size", right=("size",), whole=("since", "size"))
    for item in trashed:
        day, clock = item.time[:8], item.time[9:15]
        since = f"{day[:4]}-{day[4:6]}-{day[6:]} {clock[:2]}:{clock[2:4]}"
        made.add_row(item.id, since, size(item.size))
    return made
