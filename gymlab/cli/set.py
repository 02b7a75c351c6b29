"""Change hyperparameters of a run while it trains: they count from its next epoch on. Without key=value: what can change, and its value now."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gymlab.cli.arguments import add_json, add_plugins, add_runs_directory
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.changes import Change, Tunable
    from gymlab.engine.run import Run

USAGE = "gymlab set RUN [key=value ...] [options]"
EXAMPLES = """  gymlab set @last                             what can change, and its value now
  gymlab set @last policy_lr=1e-4              a number
  gymlab set my-run policy_lr=lin_1e-3 ent_coef=0
  gymlab set my-run clip_range='{start: 0.2, end: 0.05}'
  gymlab set my-run target_kl=null             nothing, where a setting may be absent"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="RUN key=value",
        help="run: @last, ID or its directory; then new values: numbers or schedules, written as in a YAML file",
    )
    add_plugins(parser)
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the wishes, and say when they take effect; a run that does not train takes them when it is resumed."""
    reference, *values = arguments.words
    if "=" in reference:
        raise GymlabError(f"Name the run first: gymlab set @last {' '.join(arguments.words)}")
    for value in values:
        if "=" not in value:
            raise GymlabError(f"{value!r} is no key=value. A change is written without spaces, e.g. policy_lr=1e-4.")
    from gymlab.api import get_hyperparameters, set_hyperparameters
    from gymlab.cli.output import output_kept_clean, show_json
    from gymlab.engine.run import find_run, runs_directory

    with output_kept_clean(arguments.json):
        found, _ = find_run(reference, runs_directory(arguments.runs_dir))
        place = {"runs_dir": arguments.runs_dir, "plugins": arguments.plugin}
        changes = set_hyperparameters(reference, overrides=values, **place) if values else []
        now = get_hyperparameters(reference, **place)
    if arguments.json:
        changed = {change.name: {"from": change.before, "to": change.to} for change in changes}
        shown = {tunable.name: {"value": tunable.value, "wanted": tunable.wanted} for tunable in now}
        show_json({"run": found.id, "status": found.status, "changed": changed, "hyperparameters": shown})
    elif values:
        _show_changes(found, changes)
    else:
        _show_tunables(found, now)
    return 0


def _show_changes(found: Run, changes: list[Change]) -> None:
    from gymlab.cli.output import show_text
    from gymlab.engine.changes import shown

    if not changes:
        show_text(f"{found.id}: has these values already")
        return
    if found.status == "running":
        when = "from its next epoch on"
    else:
        when = f"when it is resumed (it is {found.status}): gymlab train --resume {found.id}"
    for change in changes:
        show_text(f"{change.name}: {shown(change.before)} -> {shown(change.to)}")
    show_text(f"{found.id} takes {'it' if len(changes) == 1 else 'them'} {when}")


def _show_tunables(found: Run, now: list[Tunable]) -> None:
    from gymlab.cli.output import bold, one_line, screen, table
    from gymlab.engine.changes import shown

    made = table(found.id, "hyperparameter", "now", "wanted", "about", whole=("hyperparameter", "now", "wanted"))
    for tunable in now:
        wanted = "" if tunable.wanted == tunable.value else shown(tunable.wanted)
        made.add_row(bold(tunable.name), shown(tunable.value), wanted, one_line(tunable.description))
    screen().print(made)
