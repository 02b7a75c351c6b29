"""Removing runs: chosen in the open, moved to a trash in one step, brought back or freed from there."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gymlab.engine.files import sync
from gymlab.engine.links import refuse_links_out
from gymlab.engine.lock import run_lock
from gymlab.engine.registry import Filters, Listing, RunEntry, directory_size, read_entry, sort_entries
from gymlab.engine.run import RUN_ID, Run, last_run_id
from gymlab.errors import GymlabError, did_you_mean

TRASH = ".trash"
TRASHED = re.compile(r"(?P<id>[a-z0-9].*)-(?P<time>\d{8}-\d{6}-\d{6})")
TIME = "%Y%m%d-%H%M%S-%f"
LEAVING = ".leaving-"
"""Prefix of what is being deleted: it is half there at most, and cannot be brought back."""
FRESH_SECONDS = 60.0
"""A directory without a config is taken for a run that is just being created for so long."""


@dataclass(frozen=True)
class Rules:
    """Which runs go: those that the filters mean, less what the rest keeps."""

    filters: Filters = field(default_factory=Filters)
    older_than: float | None = None
    """Seconds since the run ended or last wrote something."""
    keep: int | None = None
    """So many of the newest runs of each experiment stay."""
    keep_best: int | None = None
    """So many of the runs with the highest return of each experiment stay."""
    include_last: bool = False
    """Whether the run that `@last` points at may go too."""

    @property
    def empty(self) -> bool:
        """Whether no rule was given, so that every run would go."""
        return self.filters == Filters() and (self.older_than, self.keep, self.keep_best) == (None, None, None)


@dataclass(frozen=True)
class Plan:
    """What would go, and what a rule protects."""

    going: list[RunEntry]
    kept: list[tuple[RunEntry, str]]
    """Runs that the filters mean, with the reason why they stay."""


@dataclass(frozen=True)
class Trashed:
    """A run in the trash."""

    id: str
    path: Path
    time: str
    """When it was put there, as its directory's name says."""
    size: int


def make_plan(runs_dir: Path, listing: Listing, rules: Rules) -> Plan:
    """Choose the runs that go. Damaged ones go only when they are asked for by `status`."""
    considered = listing.entries + (listing.damaged if rules.filters.status == "damaged" else [])
    meant = [entry for entry in considered if rules.filters.accept(entry) and RUN_ID.fullmatch(entry.id)]
    newest = _first_of_each(sort_entries(meant, "started"), rules.keep)
    best = _first_of_each([e for e in sort_entries(meant, "return") if e.score is not None], rules.keep_best)
    now, last = time.time(), last_run_id(runs_dir)
    plan = Plan([], [])
    for entry in sort_entries(meant, "started"):
        age = now - (entry.ended or now)
        if rules.older_than is not None and age < rules.older_than:
            continue
        if entry.status == "running":
            plan.kept.append((entry, "it is running"))
        elif entry.status == "incomplete" and age < FRESH_SECONDS:
            plan.kept.append((entry, "it may be starting right now"))
        elif entry.id == last and not rules.include_last:
            plan.kept.append((entry, "@last points at it; --include-last takes it too"))
        elif entry.id in newest:
            plan.kept.append((entry, f"--keep {rules.keep}: among the newest of its experiment"))
        elif entry.id in best:
            plan.kept.append((entry, f"--keep-best {rules.keep_best}: among the best of its experiment"))
        else:
            plan.going.append(entry)
    return plan


def move_to_trash(runs_dir: Path, run: Run) -> Path:
    """Put a run into the trash by one rename, while nobody can begin to train in it; returns where it is now.

    Links in it, wherever they lead, go with it and are not followed: also a run that nothing may be written to can be thrown away.
    """
    if run.dir.parent != runs_dir or run.dir.is_symlink():
        raise GymlabError(f"{run.dir} is not a directory of {runs_dir} itself and is left alone.")
    trash = _trash(runs_dir)
    _refuse_if_used(run)
    try:
        trash.mkdir(exist_ok=True)
        with run_lock(run.dir):
            target = trash / f"{run.id}-{datetime.now():{TIME}}"
            os.rename(run.dir, target)
            sync(runs_dir)
            sync(trash)
    except OSError as error:
        raise GymlabError(f"Run {run.id} could not be moved to {trash}: {error.strerror}.") from error
    return target


def thin_checkpoints(run: Run) -> None:
    """Delete all checkpoints of a run but the best and the last; these must be whole, or nothing is deleted."""
    refuse_links_out(run.dir)
    _refuse_if_used(run)
    try:
        with run_lock(run.dir):
            run.checkpoints.thin()
    except OSError as error:
        raise GymlabError(f"Checkpoints of run {run.id} could not be deleted: {error.strerror}.") from error


def trashed_runs(runs_dir: Path) -> list[Trashed]:
    """What is in the trash, the newest first."""
    found = []
    for path in _entries(_trash(runs_dir)):
        match = TRASHED.fullmatch(path.name)
        if match and path.is_dir() and not path.is_symlink():
            found.append(Trashed(match["id"], path, match["time"], directory_size(path)))
    return sorted(found, key=lambda trashed: trashed.time, reverse=True)


def restore(runs_dir: Path, run_id: str) -> Run:
    """Bring a run back from the trash, the newest of that id."""
    trashed = trashed_runs(runs_dir)
    found = next((item for item in trashed if item.id == run_id), None)
    if found is None:
        nearest = did_you_mean(run_id, {item.id for item in trashed})
        raise GymlabError(
            f"No run {run_id!r} in the trash of {runs_dir}. {nearest} `gymlab runs restore` lists what is there."
        )
    target = runs_dir / run_id
    if not RUN_ID.fullmatch(run_id) or os.path.lexists(target):
        raise GymlabError(f"Run {run_id} exists already in {runs_dir}. Rename or prune that one first.")
    os.rename(found.path, target)
    sync(runs_dir)
    return Run(target)


def empty_trash(runs_dir: Path) -> None:
    """Delete what is in the trash for good; an entry that was begun cannot be brought back any more."""
    trash = _trash(runs_dir)
    for path in _entries(trash):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            continue
        leaving = path if path.name.startswith(LEAVING) else trash / f"{LEAVING}{path.name}"
        os.rename(path, leaving)
        shutil.rmtree(leaving)


def _first_of_each(entries: Iterable[RunEntry], count: int | None) -> set[str]:
    """Ids of the first so many entries of each experiment."""
    chosen: dict[str | None, list[str]] = defaultdict(list)
    for entry in entries:
        if len(chosen[entry.experiment]) < (count or 0):
            chosen[entry.experiment].append(entry.id)
    return {run_id for ids in chosen.values() for run_id in ids}


def _refuse_if_used(run: Run) -> None:
    """An error for a run that trains. A damaged record does not tell; then the lock does, when it is taken."""
    entry = read_entry(run)
    if entry is None:
        raise GymlabError(f"{run.dir} is no run any more and is left alone.")
    if entry.status == "running":
        raise GymlabError(f"Run {run.id} is running and is left alone.")


def _trash(runs_dir: Path) -> Path:
    trash = runs_dir / TRASH
    if trash.is_symlink():
        raise GymlabError(f"{trash} is a link. Replace it by a directory: what is deleted must stay in {runs_dir}.")
    return trash


def _entries(trash: Path) -> list[Path]:
    return sorted(trash.iterdir()) if trash.is_dir() else []
