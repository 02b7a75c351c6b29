"""Move runs to the trash of their runs directory, or thin out their checkpoints; shows what goes before it goes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_json, add_runs_directory, at_least_one, seconds
from gymlab.cli.runs import add_filters, filters_of
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.prune import Plan
    from gymlab.engine.registry import RunEntry

USAGE = "gymlab runs prune [WORD ...] [options]"
EXAMPLES = """  gymlab runs prune --status crashed --dry-run        what would go; nothing is changed
  gymlab runs prune --older-than 7d --keep 3          but the three newest of each experiment
  gymlab runs prune cartpole --keep-best 1 --yes      without asking
  gymlab runs prune --older-than 1d --checkpoints-only  only checkpoints that are neither best nor last
  gymlab runs prune --empty-trash                     free the space
  gymlab runs restore my-run                          or bring one back"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_filters(parser)
    parser.add_argument("--older-than", type=seconds, metavar="TIME", help="ended longer ago than this: 12h, 7d, 4w")
    parser.add_argument("--keep", type=at_least_one, metavar="N", help="keep the N newest runs of each experiment")
    parser.add_argument("--keep-best", type=at_least_one, metavar="N", help="keep the N best runs of each experiment")
    parser.add_argument("--include-last", action="store_true", help="also the run that @last points at")
    parser.add_argument(
        "--checkpoints-only", action="store_true", help="delete their checkpoints, for good, but the best and the last"
    )
    parser.add_argument("--empty-trash", action="store_true", help="delete what is in the trash, for good")
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would go, and change nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show what would go; when that is agreed to, let it go."""
    from gymlab.engine.prune import Rules, make_plan
    from gymlab.engine.registry import scan
    from gymlab.engine.run import runs_directory

    runs_dir = runs_directory(arguments.runs_dir)
    rules = Rules(
        filters_of(arguments), arguments.older_than, arguments.keep, arguments.keep_best, arguments.include_last
    )
    if arguments.empty_trash:
        if not rules.empty or arguments.checkpoints_only:
            raise GymlabError(
                "--empty-trash deletes all that is in the trash and goes alone. Prune first, then empty it."
            )
        return _empty_trash(runs_dir, arguments)
    if rules.empty:
        raise GymlabError(
            "Without a filter every run would go. Say which, for example:\n"
            "  gymlab runs prune --status crashed\n"
            "  gymlab runs prune --older-than 7d --keep 3\n"
            "  gymlab runs prune 'cartpole-*' --keep-best 1\n"
            "Add --dry-run to see what would go."
        )
    plan = make_plan(runs_dir, scan(runs_dir), rules)
    if arguments.checkpoints_only:
        return _thin(plan, arguments)
    return _move(runs_dir, plan, arguments)


def _move(runs_dir: Path, plan: Plan, arguments: argparse.Namespace) -> int:
    from gymlab.cli.output import screen, size
    from gymlab.cli.runs import run_table
    from gymlab.engine.prune import move_to_trash

    total = sum(entry.size for entry in plan.going)
    console = screen()
    if not arguments.json:
        if plan.going:
            console.print(run_table(plan.going, console.width, with_size=True, title="to the trash"))
        _show_kept(console, plan)
    what = f"{_count(len(plan.going), 'run')}, {size(total)}"
    done: list[str] = []
    failed: list[str] = []
    agreed = bool(plan.going) and _agreed(f"Move {what}, to the trash?", arguments)
    if agreed:
        done, failed = _each(plan.going, lambda entry: move_to_trash(runs_dir, entry.run))
    if arguments.json:
        _show_json(plan, {entry.id: entry.size for entry in plan.going}, done, failed, arguments)
    elif not plan.going:
        console.print("nothing to prune")
    elif agreed:
        console.print(
            f"{_count(len(done), 'run')} moved to the trash; `gymlab runs prune --empty-trash` frees the space"
        )
    else:
        console.print(f"{what} would go; nothing was changed")
    return _tell_failures(failed)


def _thin(plan: Plan, arguments: argparse.Namespace) -> int:
    from gymlab.cli.output import screen, size, table
    from gymlab.engine.prune import thin_checkpoints
    from gymlab.engine.registry import directory_size

    spare = {entry.id: [item.path for item in entry.run.checkpoints.spare()] for entry in plan.going}
    sizes = {run_id: sum(directory_size(path) for path in paths) for run_id, paths in spare.items() if paths}
    going = [entry for entry in plan.going if entry.id in sizes]
    console = screen()
    if not arguments.json:
        made = table("checkpoints to delete", "run", "checkpoints", "size", right=("size",), whole=("size",))
        for entry in going:
            names = ", ".join(path.name.removesuffix(".ckpt") for path in spare[entry.id])
            made.add_row(entry.id, names, size(sizes[entry.id]))
        if going:
            console.print(made)
        _show_kept(console, plan)
    count = sum(len(spare[entry.id]) for entry in going)
    what = f"{_count(count, 'checkpoint')} of {_count(len(going), 'run')}, {size(sum(sizes.values()))}"
    done: list[str] = []
    failed: list[str] = []
    agreed = bool(going) and _agreed(f"Delete {what}, for good?", arguments)
    if agreed:
        done, failed = _each(going, lambda entry: thin_checkpoints(entry.run))
    if arguments.json:
        _show_json(plan, sizes, done, failed, arguments)
    elif not going:
        console.print("nothing to prune: these runs have their best and last checkpoint only")
    elif agreed:
        freed = size(sum(sizes[run_id] for run_id in done))
        console.print(f"checkpoints of {_count(len(done), 'run')} deleted, {freed} freed")
    else:
        console.print(f"{what} would go; nothing was changed")
    return _tell_failures(failed)


def _empty_trash(runs_dir: Path, arguments: argparse.Namespace) -> int:
    from gymlab.cli.output import screen, show_json, size
    from gymlab.cli.runs_restore import trash_table
    from gymlab.engine.prune import TRASH, empty_trash, trashed_runs
    from gymlab.engine.registry import directory_size

    trashed, total = trashed_runs(runs_dir), directory_size(runs_dir / TRASH)
    console = screen()
    if not arguments.json and trashed:
        console.print(trash_table(trashed))
    filled = (runs_dir / TRASH).is_dir() and any((runs_dir / TRASH).iterdir())
    agreed = filled and _agreed(f"Delete {_count(len(trashed), 'run')}, {size(total)}, for good?", arguments)
    if agreed:
        empty_trash(runs_dir)
    if arguments.json:
        show_json(
            {"dry_run": arguments.dry_run, "deleted": [item.id for item in trashed] if agreed else [], "bytes": total}
        )
    elif not filled:
        console.print(f"the trash of {runs_dir} is empty")
    else:
        console.print(f"{size(total)} freed" if agreed else f"{size(total)} would be freed; nothing was changed")
    return 0


def _agreed(question: str, arguments: argparse.Namespace) -> bool:
    """Whether to go on: by --yes, or by an answer; where nobody can answer, an error."""
    from gymlab.cli.output import screen

    if arguments.dry_run:
        return False
    if arguments.yes:
        return True
    if arguments.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise GymlabError("Nothing was changed: nobody can be asked here. Give --yes to do it, or --dry-run to look.")
    return screen().input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _each(entries: list[RunEntry], act: Callable[[RunEntry], Any]) -> tuple[list[str], list[str]]:
    """Act on each run; the ids that worked, and what was wrong with the others."""
    done: list[str] = []
    failed: list[str] = []
    for entry in entries:
        try:
            act(entry)
            done.append(entry.id)
        except GymlabError as error:
            failed.append(str(error))
    return done, failed


def _show_kept(console: Any, plan: Plan) -> None:
    from rich.text import Text

    for entry, reason in plan.kept:
        console.print(Text(f"kept: {entry.id}: {reason}", style="dim"), soft_wrap=True)


def _show_json(
    plan: Plan, sizes: dict[str, int], done: list[str], failed: list[str], arguments: argparse.Namespace
) -> None:
    from gymlab.cli.output import show_json

    show_json(
        {
            "dry_run": arguments.dry_run,
            "going": [{"id": run_id, "bytes": count} for run_id, count in sizes.items()],
            "bytes": sum(sizes.values()),
            "kept": [{"id": entry.id, "reason": reason} for entry, reason in plan.kept],
            "done": done,
            "failed": failed,
        }
    )


def _tell_failures(failed: list[str]) -> int:
    """Say what was left alone, and why; 1 if anything was."""
    from gymlab.cli.output import show_error

    for message in failed:
        show_error(message)
    return 1 if failed else 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
