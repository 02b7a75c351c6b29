"""Show one run in full: status and reason, result, command, checkpoints, sizes, sittings."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import add_json, add_runs_directory
from gymlab.errors import GymlabError

if TYPE_CHECKING:
    from gymlab.engine.registry import CheckpointEntry, RunEntry

USAGE = "gymlab runs show [RUN] [options]"
EXAMPLES = """  gymlab runs show                     the newest run
  gymlab runs show my-run
  gymlab runs show runs/my-run --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "reference", nargs="?", default="@last", metavar="RUN", help="@last (default), ID or a directory"
    )
    add_runs_directory(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the run."""
    from gymlab.cli.output import screen, show_json
    from gymlab.cli.runs import as_json
    from gymlab.engine.callbacks.alerts import read_alerts
    from gymlab.engine.registry import checkpoint_entries, read_entry
    from gymlab.engine.run import find_run, runs_directory

    found, _ = find_run(arguments.reference, runs_directory(arguments.runs_dir))
    entry = read_entry(found)
    if entry is None:
        raise GymlabError(f"{found.dir} is no run of gymlab: its config.json names no environment.")
    if entry.status == "damaged":
        raise GymlabError(f"Run {entry.id} is damaged: {entry.reason}")
    checkpoints = checkpoint_entries(found)
    if arguments.json:
        shown = ("command", "repeat", "pid", "host", "backend", "machine", "versions", "counters")
        history = {
            "resumed": entry.record.get("resumed") or [],
            "alerts": [asdict(one) for one in read_alerts(entry.run.dir)],
        }
        about = {name: entry.record.get(name) for name in shown}
        show_json(as_json(entry) | about | history | {"checkpoints": [vars(item) for item in checkpoints]})
        return 0
    _show(screen(), entry, checkpoints)
    return 0


def _show(console: Any, entry: RunEntry, checkpoints: list[CheckpointEntry]) -> None:
    from rich.text import Text

    from gymlab.cli.output import table

    head = table(entry.id, "", "")
    head.show_header = False
    for name, value in _rows(entry):
        head.add_row(Text(name, style="dim"), value if isinstance(value, Text) else Text(value))
    console.print(head)
    console.print()
    if checkpoints:
        console.print(_checkpoint_table(checkpoints))
    else:
        console.print("no finished checkpoint")


def _rows(entry: RunEntry) -> list[tuple[str, Any]]:
    from rich.text import Text

    from gymlab.cli.output import ago, size
    from gymlab.cli.runs import COLOURS, return_text, status_text
    from gymlab.engine.callbacks.alerts import read_alerts
    from gymlab.engine.report import repeat_command
    from gymlab.metrics.report import duration_text

    record = entry.record
    steps = "-" if entry.env_steps is None else f"{entry.env_steps:,}"
    first, rest = status_text(entry), entry.reason.partition("\n")[2]
    rows: list[tuple[str, Any]] = [
        ("status", Text(f"{first}\n{rest}".strip(), style=COLOURS.get(entry.status, "dim"))),
        ("experiment", f"{entry.experiment or '-'}, seed {entry.seed}"),
        ("return", return_text(entry) + _episodes(entry)),
        ("env steps", steps + (f" of {entry.budget:,}" if entry.budget else "")),
        ("wall time", f"{duration_text(entry.wall_seconds)} ({duration_text(entry.seconds)} of training)"),
        ("started", _moment(entry.started)),
    ]
    if entry.status != "running":
        rows.append(("ended" if record.get("ended") else "last news", _moment(entry.ended)))
    elif record.get("pid"):
        rows.append(("process", f"{record['pid']} on {record.get('host')}, last news {ago(entry.run.last_news)}"))
    for sitting in record.get("resumed") or []:
        rows.append(("resumed", f"from {sitting.get('from')}, {_moment(sitting.get('time'))}"))
    for one in read_alerts(entry.run.dir):
        rows.append(("alert", f"{one.id}: {one.message} {one.tip}"))
    rows.append(("command", str(record.get("command") or "none: trained from Python")))
    rows.append(("repeat", repeat_command(entry.run, from_here=True)))
    if versions := record.get("versions"):
        rows.append(("versions", ", ".join(f"{name} {number}" for name, number in versions.items())))
    rows.append(("directory", f"{entry.run.dir}, {size(entry.size)}"))
    return rows


def _episodes(entry: RunEntry) -> str:
    """What the return was measured on, and what may be said of it."""
    result = entry.result
    if not result:
        return ""
    said = result["note"] if result["mean"] is not None else None
    parts = [said or f"{result['n']} episodes"] if said or result.get("n") else []
    if result.get("threshold") is not None:
        verdict = result["verdict"].partition(" (")[0]
        parts.append(f"threshold {result['threshold']:g}" + ("" if result["note"] else f": {verdict}"))
    return f"; {'; '.join(parts)}" if parts else ""


def _moment(seconds: float | None) -> str:
    from gymlab.cli.output import ago

    if seconds is None:
        return "-"
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}, {ago(seconds)}"


def _checkpoint_table(checkpoints: list[CheckpointEntry]) -> Any:
    from gymlab.cli.output import ago, size, table

    made = table("checkpoints", "name", "", "size", "written", right=("size",), whole=("name", "size", "written"))
    for checkpoint in checkpoints:
        made.add_row(checkpoint.name, ", ".join(checkpoint.links), size(checkpoint.size), ago(checkpoint.written))
    return made
