"""What runs there are. Each run's directory is the truth; no index could go stale, and a damaged run hides no other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from gymlab.engine.lock import LOCK_FILE
from gymlab.engine.manifest import MANIFEST, finished_checkpoints, name_and_place
from gymlab.engine.record import is_number, is_whole, seed_of
from gymlab.engine.run import RUN_ID, Run, run_directories, state_of
from gymlab.errors import GymlabError, did_you_mean
from gymlab.metrics import names
from gymlab.metrics.csv_file import last_row
from gymlab.metrics.results import judge

STATUSES = ("running", "finished", "stopped", "crashed", "incomplete", "damaged")
SORT_KEYS = ("started", "return", "steps", "time", "size", "name", "status")


@dataclass(frozen=True)
class RunEntry:
    """One run as a listing shows it; a field is None where the run does not tell."""

    run: Run
    status: str
    reason: str = ""
    experiment: str | None = None
    env_id: str | None = None
    algo: str | None = None
    seed: int | None = None
    started: float | None = None
    ended: float | None = None
    """When it ended, or last wrote something."""
    env_steps: int | None = None
    budget: int | None = None
    """Env steps it may take."""
    seconds: float | None = None
    """Time of the training loop, over all sittings."""
    wall_seconds: float | None = None
    """Wall time of the whole run, where it is known."""
    result: dict[str, Any] = field(default_factory=dict)
    """The final evaluation as it is judged: mean (None: no episode ended), ci95, n, solved, verdict, note."""
    best_return: float | None = None
    """Of the evaluations during training."""
    train_return: float | None = None
    """Of the newest row of metrics, for a run that has no evaluation."""
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Name of the run."""
        return self.run.id

    @property
    def score(self) -> float | None:
        """The return to compare by: of the final evaluation, else the best during training, else of training itself."""
        found = (self.result.get("mean"), self.best_return, self.train_return)
        return next((value for value in found if value is not None), None)

    @cached_property
    def size(self) -> int:
        """Bytes on disk; counted when asked for, since that is the slow part of a listing."""
        return directory_size(self.run.dir)


@dataclass(frozen=True)
class Listing:
    """What is in a runs directory."""

    entries: list[RunEntry]
    damaged: list[RunEntry]
    """Runs that cannot be read, with the reason."""
    foreign: list[str]
    """Directories that are no runs; they are left alone."""


@dataclass(frozen=True)
class Filters:
    """Which runs are meant; nothing given means all of them."""

    words: tuple[str, ...] = ()
    """Each occurs in the run's id, experiment or status, or is a pattern such as `cartpole-*` for the id."""
    status: str | None = None
    env: str | None = None
    """Pattern for the environment's id."""
    algo: str | None = None
    since: float | None = None
    """Began at this time or later."""

    def accept(self, entry: RunEntry) -> bool:
        """Whether the run is meant."""
        return (
            all(_has_word(entry, word.lower()) for word in self.words)
            and self.status in (None, entry.status)
            and (self.env is None or fnmatchcase((entry.env_id or "").lower(), self.env.lower()))
            and self.algo in (None, entry.algo)
            and (self.since is None or (entry.started or 0.0) >= self.since)
        )


def scan(runs_dir: Path) -> Listing:
    """Read every run of a directory, by name."""
    listing = Listing([], [], [])
    for path in run_directories(runs_dir):
        entry = read_entry(Run(path))
        if entry is None:
            listing.foreign.append(path.name)
        else:
            (listing.damaged if entry.status == "damaged" else listing.entries).append(entry)
    return listing


def read_entry(run: Run) -> RunEntry | None:
    """One run; `damaged` with the reason where it cannot be read, None for a directory that is no run at all."""
    try:
        contents = os.listdir(run.dir)
        if "config.json" not in contents:
            return _incomplete(run) if _was_being_created(run, contents) else None
        config, record = run.config_data, run.record
        if "run.json" not in contents and "env_id" not in config:
            return None
        return _entry(run, config, record)
    except FileNotFoundError:
        return None  # Gone since the directory was listed.
    except GymlabError as error:
        return RunEntry(run, "damaged", str(error))
    except OSError as error:
        place = error.filename or run.dir
        fix = "Ask its owner for the permission to read it, or `chmod -R u+rwX` it."
        return RunEntry(run, "damaged", f"{place} cannot be read: {error.strerror}. {fix}")


def sort_entries(entries: list[RunEntry], key: str = "started", *, reverse: bool = False) -> list[RunEntry]:
    """By a key of `SORT_KEYS`: the newest, best, longest or largest first, names in order; unknown values always last."""
    if key not in SORT_KEYS:
        raise GymlabError(f"--sort {key!r}: {did_you_mean(key, SORT_KEYS)} There is: {', '.join(SORT_KEYS)}.")
    values: dict[str, Any] = {
        "started": lambda entry: entry.started,
        "return": lambda entry: entry.score,
        "steps": lambda entry: entry.env_steps,
        "time": lambda entry: entry.seconds,
        "size": lambda entry: entry.size,
        "name": lambda entry: entry.id,
        "status": lambda entry: STATUSES.index(entry.status) if entry.status in STATUSES else len(STATUSES),
    }
    value_of = values[key]
    known = [entry for entry in entries if value_of(entry) is not None]
    known.sort(key=value_of, reverse=(key not in ("name", "status")) != reverse)
    return known + [entry for entry in entries if value_of(entry) is None]


def directory_size(directory: Path) -> int:
    """Bytes of the files below a directory; links are not followed, and what vanishes meanwhile is not counted."""
    total, waiting = 0, [os.fspath(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total


@dataclass(frozen=True)
class CheckpointEntry:
    """One checkpoint as a listing shows it."""

    name: str
    links: tuple[str, ...]
    """`best` and `last`, where those point at it."""
    size: int
    written: float


def checkpoint_entries(run: Run) -> list[CheckpointEntry]:
    """The finished checkpoints of a run, oldest first, without opening them."""
    directory = run.dir / "checkpoints"
    if not directory.is_dir():
        return []
    found = []
    for path in finished_checkpoints(directory):
        name, _ = name_and_place(path)
        # A run that trains may take it away while it is looked at.
        with suppress(FileNotFoundError):
            written = (path / MANIFEST).stat().st_mtime
            found.append(CheckpointEntry(name, links_to(path), directory_size(path), written))
    return sorted(found, key=lambda entry: (entry.written, entry.name))


def links_to(checkpoint: Path) -> tuple[str, ...]:
    """`best` and `last`, where those of its run point at a checkpoint."""
    links = {name: checkpoint.with_name(f"{name}.ckpt") for name in ("best", "last")}
    return tuple(name for name, link in links.items() if link.is_symlink() and os.readlink(link) == checkpoint.name)


def _entry(run: Run, config: Mapping[str, Any], record: Mapping[str, Any]) -> RunEntry:
    state = state_of(run, record)
    steps, seconds = (record.get("counters") or {}).get("env_steps"), record.get("seconds")
    row: dict[str, float] = {}
    if state.status not in ("finished", "stopped") or None in (steps, seconds):
        row = {name: value for name, value in last_row(run.dir / "metrics.csv").items() if is_number(value)}
        steps, seconds = row.get(names.ENV_STEPS, steps), row.get(names.WALL_SECONDS, seconds)
    budget = config.get("max_env_steps")
    return RunEntry(
        run,
        state.status,
        state.reason,
        experiment=record.get("experiment") or _experiment(config),
        env_id=_text(config.get("env_id")),
        algo=_text(config.get("algo_id")),
        seed=seed_of(record, config),
        started=record.get("started") or (run.dir / "config.json").stat().st_mtime,
        ended=record.get("ended") or run.last_news,
        env_steps=None if steps is None else int(steps),
        budget=budget if is_whole(budget) else None,
        seconds=seconds,
        wall_seconds=record.get("wall_seconds"),
        result=judge(record["result"], config) if record.get("result") else {},
        best_return=record.get("best_return"),
        train_return=row.get(names.episode_return("train")),
        record=record,
    )


def _incomplete(run: Run) -> RunEntry:
    state, news = state_of(run, {}), run.dir.stat().st_mtime
    return RunEntry(run, state.status, state.reason, started=news, ended=news)


def _was_being_created(run: Run, contents: list[str]) -> bool:
    """Whether a directory without config.json holds no more than what is written before it."""
    return bool(RUN_ID.fullmatch(run.id)) and all(
        name.startswith(".") or name in (LOCK_FILE, "run.json") for name in contents
    )


def _has_word(entry: RunEntry, word: str) -> bool:
    if "*" in word or "?" in word:
        return fnmatchcase(entry.id, word)
    return any(word in (text or "").lower() for text in (entry.id, entry.experiment, entry.status))


def _experiment(config: Mapping[str, Any]) -> str | None:
    name = config.get("project_id") or config.get("env_id")
    return f"{name}:{config.get('variant') or config.get('algo_id')}" if name else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
