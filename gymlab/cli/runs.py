"""List runs with their status and its reason, return, steps, time and size; show one in full, prune, restore."""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_json, add_runs_directory, at_least_one, seconds
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from rich.text import Text

    from gymlab.engine.registry import Filters, Listing, RunEntry

USAGE = """gymlab runs [WORD ...] [options]
       gymlab runs show RUN
       gymlab runs prune [WORD ...] [options]
       gymlab runs restore [ID]"""
EXAMPLES = """  gymlab runs                                    all of them, the newest first
  gymlab runs cartpole --status crashed          what crashed, and why
  gymlab runs --env 'LunarLander*' --sort return --limit 5
  gymlab runs --since 2d --json
  gymlab runs show @last                         one run in full
  gymlab runs prune --status crashed --dry-run   what would go, and how much space that is
  gymlab runs --long --limit 3                   the newest, with experiment and whole reason
  gymlab runs restore my-run                     back from the trash"""

COMMANDS = ("show", "prune", "restore")
SHOWN_STATUSES = ("running", "finished", "stopped", "crashed", "incomplete", "damaged")
COLOURS = {"finished": "green", "running": "cyan", "stopped": "yellow", "crashed": "red", "damaged": "red"}
COLUMNS = ("run", "experiment", "seed", "status", "return", "return [95%]", "env steps", "training", "started", "size")
ALWAYS = ("experiment", "return")
BY_IMPORTANCE = ("env steps", "started", "return [95%]", "training", "seed")
"""Columns that a narrow screen shows first, behind those that it always shows."""
STATUS_WIDTH, LEAST_STATUS_WIDTH = 20, 12
"""Characters of status and reason that other columns leave, and the most important ones; what is left over is theirs, too."""
WIDE = 120
"""Width from which on the sizes are counted: that takes longer than all the rest."""
GAP = 2
MORE_COLUMNS = "\N{HORIZONTAL ELLIPSIS} more columns: gymlab runs --long"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_filters(parser)
    parser.add_argument(
        "--sort",
        default="started",
        metavar="KEY",
        help="started (default), return, steps, time, size, name or status; the newest, best or largest first",
    )
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    parser.add_argument("--long", action="store_true", help="each run with its experiment and its whole reason")
    parser.add_argument("--limit", type=at_least_one, metavar="N", help="show the first N only")
    add_runs_directory(parser)
    add_json(parser)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Which runs are meant."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="what id, experiment or status must contain, or a pattern: 'cartpole-*'",
    )
    parser.add_argument("--status", choices=SHOWN_STATUSES, metavar="STATUS", help=", ".join(SHOWN_STATUSES))
    parser.add_argument("--env", metavar="GLOB", help="environment id or pattern: CartPole-v1, 'ALE/*'")
    parser.add_argument("--algo", metavar="NAME", help="algorithm: ppo")
    parser.add_argument("--since", type=seconds, metavar="TIME", help="began within this time: 30min, 12h, 2d, 1w")


def filters_of(arguments: argparse.Namespace) -> Filters:
    """The filters that were given."""
    from gymlab.engine.registry import Filters

    since = None if arguments.since is None else time.time() - arguments.since
    return Filters(tuple(arguments.words), arguments.status, arguments.env, arguments.algo, since)


def run(arguments: argparse.Namespace) -> int:
    """Show the runs that the filters mean."""
    from rich.text import Text

    from gymlab.cli.output import screen, show_json
    from gymlab.engine.registry import scan, sort_entries
    from gymlab.engine.run import runs_directory

    if arguments.words and arguments.words[0] in COMMANDS:
        raise GymlabError(f"`{arguments.words[0]}` comes first, then its options: gymlab runs {arguments.words[0]} ...")
    runs_dir = runs_directory(arguments.runs_dir)
    listing = scan(runs_dir)
    chosen = [entry for entry in listing.entries if filters_of(arguments).accept(entry)]
    found = sort_entries(chosen, arguments.sort, reverse=arguments.reverse)
    shown = found[: arguments.limit]
    if arguments.json:
        damaged = [{"id": entry.id, "problem": entry.reason, "dir": entry.run.dir} for entry in listing.damaged]
        show_json({"runs": [as_json(entry) for entry in shown], "damaged": damaged, "foreign": listing.foreign})
        return 0
    console = screen()
    if arguments.status == "damaged":
        shown = []
    elif not shown:
        console.print(_nothing(runs_dir, len(listing.entries)))
    elif arguments.long:
        for entry in shown:
            console.print(whole_entry(entry), soft_wrap=True)
    else:
        console.print(run_table(shown, console.width, with_size=arguments.sort == "size"))
        for entry in shown:
            if entry.result.get("note"):
                console.print(Text(f"{entry.id}: {entry.result['note']}", style="yellow"), soft_wrap=True)
    if len(shown) < len(found):
        console.print(f"\n{len(found) - len(shown):,} more; without --limit all are shown", style="dim")
    _show_damage(console, listing, runs_dir)
    return 0


def as_json(entry: RunEntry) -> dict[str, Any]:
    """A run in plain values."""
    names = ("id", "status", "reason", "experiment", "env_id", "algo", "seed", "started", "ended", "env_steps")
    more = ("budget", "seconds", "wall_seconds", "best_return", "train_return", "size")
    row = {name: getattr(entry, name) for name in names + more}
    return row | {"result": entry.result or None, "dir": entry.run.dir}


def whole_entry(entry: RunEntry) -> Text:
    """A run in a few lines, with nothing cut off."""
    from rich.text import Text

    told = Text.assemble((entry.id, "bold"), "  ", (status_text(entry), COLOURS.get(entry.status, "dim")))
    for line in entry.reason.splitlines()[1:]:
        told.append(f"\n  {line}")
    cells = (
        f"{column} {_cell(entry, column)}" for column in ("seed", "return [95%]", "env steps", "training", "started")
    )
    told.append(f"\n  {entry.experiment or '-'}, {', '.join(cells)}", "dim")
    return told


def run_table(entries: list[RunEntry], width: int, *, with_size: bool = False, title: str = "runs") -> Any:
    """The table, with as many columns as there is room for, the important ones first; where some are left out, a line says so."""
    from rich.cells import cell_len

    from gymlab.cli.output import one_line, table

    wanted = [*(["size"] if with_size else []), *BY_IMPORTANCE, *(["size"] if width >= WIDE and not with_size else [])]
    cells = {column: [_cell(entry, column) for entry in entries] for column in ("run", "status", *ALWAYS, *wanted)}
    widths = {name: max(cell_len(text) for text in (name, *texts)) for name, texts in cells.items()}
    chosen = {"run", "status", *ALWAYS}
    room = width - sum(widths[column] + GAP for column in ("run", *ALWAYS))
    for column in wanted:
        # The return with its interval takes the place of the one without.
        replaced = "return" if column == "return [95%]" else None
        needed = widths[column] - widths["return"] if replaced else widths[column] + GAP
        status = min(widths["status"], LEAST_STATUS_WIDTH if column == BY_IMPORTANCE[0] else STATUS_WIDTH)
        if needed <= room - status:
            chosen = (chosen - {replaced}) | {column}
            room -= needed
    columns = [column for column in COLUMNS if column in chosen]
    whole = [column for column in columns if column != "status"]
    made = table(title, *columns, right=("seed", "env steps", "training", "size"), whole=whole)
    if not {*BY_IMPORTANCE} <= chosen:
        made.caption, made.caption_justify, made.caption_style = MORE_COLUMNS, "left", "dim"
    for index, entry in enumerate(entries):
        row = {column: one_line(cells[column][index]) for column in columns}
        row["status"].stylize(COLOURS.get(entry.status, "dim"))
        made.add_row(*row.values())
    return made


def _cell(entry: RunEntry, column: str) -> str:
    from gymlab.cli.output import ago, size
    from gymlab.metrics.report import format_duration

    match column:
        case "run":
            return entry.id
        case "status":
            return short_status(entry)
        case "return" | "return [95%]":
            if entry.result and not entry.result["complete"]:
                # What is to be said of it stands below the table.
                return f"{short_mean(entry)} ({entry.result.get('n', 0)} of {entry.result['asked'] or 'more'})"
            return return_text(entry, whole=column != "return")
        case "env steps":
            return "-" if entry.env_steps is None else f"{entry.env_steps:,}"
        case "training":
            return "-" if entry.seconds is None else format_duration(entry.seconds)
        case "started":
            return ago(entry.started)
        case "size":
            return size(entry.size)
        case _:
            value = getattr(entry, column)
            return "-" if value is None else str(value)


def short_status(entry: RunEntry) -> str:
    """The status for a table: `running: 24%`, `finished: ≥ 475`, `crashed: NonFiniteError: ...`."""
    if entry.status == "running" and not entry.reason and entry.budget and entry.env_steps is not None:
        return f"running: {100 * entry.env_steps / entry.budget:.0f}%"
    return re.sub(r"^finished: \S+ \S+ reached", "finished: ≥", status_text(entry))


def status_text(entry: RunEntry) -> str:
    """The status with its reason in one line: `crashed: NonFiniteError: ...`, `stopped by SIGTERM`."""
    reason = entry.reason.partition("\n")[0]
    if not reason or reason.startswith(entry.status):
        return reason or entry.status
    return f"{entry.status}: {reason}"


def short_mean(entry: RunEntry) -> str:
    """The mean of a final evaluation, `-` where no episode ended."""
    from gymlab.metrics.statistics import format_number

    return "-" if entry.result["mean"] is None else format_number(entry.result["mean"])


def return_text(entry: RunEntry, *, whole: bool = True) -> str:
    """Return with interval and ✓ when solved; without a final evaluation the best one, or that of training."""
    from gymlab.metrics import results
    from gymlab.metrics.statistics import format_number

    if entry.result:
        text = results.return_text(entry.result) if whole else short_mean(entry)
        return f"{text} ✓" if entry.result["solved"] else text
    if entry.best_return is not None:
        return f"{format_number(entry.best_return)} best"
    return "-" if entry.train_return is None else f"{format_number(entry.train_return)} train"


def _nothing(runs_dir: Path, others: int) -> str:
    if others:
        return f"None of the {others:,} runs in {runs_dir} is like that; `gymlab runs` without filters shows all."
    return f"No runs in {runs_dir}. `gymlab train CartPole-v1:ppo` makes one; --runs-dir looks elsewhere."


def _show_damage(console: Any, listing: Listing, runs_dir: Path) -> None:
    from rich.text import Text

    if listing.damaged:
        console.print(Text(f"\n{len(listing.damaged)} damaged in {runs_dir}:", style="red"))
    for entry in listing.damaged:
        console.print(Text(f"  {entry.id}: {' '.join(entry.reason.splitlines())}"), soft_wrap=True)
    if listing.foreign:
        console.print(Text(f"\nno runs, left alone: {', '.join(listing.foreign)}", style="dim"))
