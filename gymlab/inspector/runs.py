"""The list of runs: status, result and a small curve of each; a run is read anew when one of its files has changed, or while it trains."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from gymlab.engine.callbacks.alerts import read_alerts
from gymlab.engine.links import links_out
from gymlab.engine.registry import RunEntry, read_entry
from gymlab.engine.run import Run
from gymlab.errors import GymlabError
from gymlab.inspector.routes import FILES_READ, Request, Response, finite, json_response, route
from gymlab.inspector.table import MetricsTable
from gymlab.metrics import names

SPARKLINE_POINTS = 48
RETURNS = tuple(names.episode_return(purpose) for purpose in ("train", "val"))
"""What a small curve shows: the first of them that the run has."""

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass
class Shelf:
    """What was read of each run, with the state of its files at that time."""

    rows: dict[str, tuple[Stamp, dict[str, Any] | None]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def row(self, run: Run) -> dict[str, Any] | None:
        """The run for the list; None for a directory that is none."""
        stamp = file_stamp(run.dir)
        kept = self.rows.get(run.id)
        # Whether a run still trains is not written in a file: its lock is looked at each time.
        if kept is not None and kept[0] == stamp and (kept[1] is None or kept[1]["status"] != "running"):
            return kept[1]
        row = read_row(run)
        self.rows[run.id] = stamp, row
        return row


@route("GET", "/api/runs", query=("seen",))
def runs(request: Request) -> Response:
    """Every run, by name; `unchanged` for a page that has seen this list already."""
    inspector = request.inspector
    shelf = inspector.shared("runs", Shelf)
    with shelf.lock:
        found = [shelf.row(Run(inspector.runs_dir / name)) for name in inspector.run_names()]
    answer = {
        "runs": [row for row in found if row is not None],
        "directory": str(inspector.runs_dir),
        "initial": inspector.initial,
    }
    version = hashlib.sha256(json.dumps(finite(answer), sort_keys=True).encode()).hexdigest()[:16]
    if request.text("seen", "") == version:
        return json_response({"unchanged": True, "version": version})
    return json_response({**answer, "version": version})


def read_row(run: Run) -> dict[str, Any] | None:
    """One run as the page shows it. One that cannot be read is there too, with the reason."""
    if leading_out := links_out(run.dir, FILES_READ):
        reason = f"{', '.join(leading_out)} leads out of the run; it is not read."
        return plain_row(RunEntry(run, "damaged", reason))
    entry = read_entry(run)
    if entry is None:
        return None
    row = plain_row(entry)
    if entry.status not in ("damaged", "incomplete"):
        row["sparkline"] = sparkline(run.dir / "metrics.csv")
        row["alerts"] = alert_count(run)
    return row


def plain_row(entry: RunEntry) -> dict[str, Any]:
    """An entry of the registry in plain values."""
    fields = (
        "id",
        "status",
        "reason",
        "experiment",
        "env_id",
        "algo",
        "seed",
        "started",
        "ended",
        "env_steps",
        "budget",
        "seconds",
    )
    row = {name: getattr(entry, name) for name in fields}
    row["reason"] = entry.reason.partition("\n")[0]
    return row | {"score": score(entry), "sparkline": [], "alerts": 0}


def score(entry: RunEntry) -> dict[str, Any] | None:
    """The return to show, where it comes from (test, best or train) and its interval where there is one."""
    result = entry.result
    if result:
        shown = ("mean", "ci95", "min", "max", "n", "asked", "solved", "verdict", "note")
        return {name: result.get(name) for name in shown} | {"source": "test"}
    if entry.best_return is not None:
        return {"mean": entry.best_return, "source": "best"}
    return None if entry.train_return is None else {"mean": entry.train_return, "source": "train"}


def sparkline(path: Path) -> list[float]:
    """The return over the run in some points; a sample, whatever the size of the file."""
    try:
        table = MetricsTable(path)
    except (GymlabError, OSError):
        return []
    for name in RETURNS:
        values = table.sample([name], SPARKLINE_POINTS).get(name)
        if values is not None and np.isfinite(values).any():
            return [float(f"{value:.5g}") for value in values[np.isfinite(values)].tolist()]
    return []


def alert_count(run: Run) -> int | None:
    """How many alerts a run has; None where its file cannot be read."""
    try:
        return len(read_alerts(run.dir))
    except (GymlabError, OSError):
        return None


def file_stamp(directory: Path) -> Stamp:
    """What differs when a file of a run was written to or replaced."""
    return tuple(_identity(directory / name) for name in (".", *FILES_READ))


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
