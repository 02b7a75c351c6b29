"""A run: the directory that holds everything about one training, and how it is found again."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.config.schema import Config
from gymlab.engine.files import read_mapping, relative_link, write_json
from gymlab.engine.lock import boot_id, is_alive, look_at, refuse_if_gone
from gymlab.engine.record import known_fields
from gymlab.engine.source import source_commit
from gymlab.errors import CheckpointError, GymlabError, did_you_mean
from gymlab.plain_files import open_plain

if TYPE_CHECKING:
    from gymlab.engine.agent import Agent
    from gymlab.engine.checkpoint import CheckpointManager

logger = logging.getLogger(__name__)

RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
LAST = "@last"
REPEATED = "-repeat"
"""What is put behind the id of a run for its repetition's."""
ENDED_WITHOUT_A_WORD = "the process ended without a word (killed?)"
SILENT_SECONDS = 900.0
"""A run of another host that has written nothing for so long may go on here: its machine is likely gone."""
CONFIG = "config.json"
"""Settings as they are wanted now: may be edited while the run trains."""
STARTED = "config.start.json"
"""The config that the run was started with."""
RECORD = "run.json"
"""What the run is and how it went, written by the run itself."""


def runs_directory(given: str | Path | None = None) -> Path:
    """Where runs are: the one given, `GYMLAB_RUNS`, or `runs` below the current directory."""
    return Path(given or os.environ.get("GYMLAB_RUNS") or "runs")


def check_run_id(run_id: str) -> str:
    """The id, if it is a plain lower-case name that cannot leave the runs directory."""
    if not RUN_ID.fullmatch(run_id) or ".." in run_id:
        raise GymlabError(
            f"Run id {run_id!r} is not allowed. Use lower-case letters, digits, '.', '_' and '-', at most 64, e.g. cartpole-ppo-1."
        )
    return run_id


def new_run_id(config: Config) -> str:
    """A readable id: environment, variant, seed and time."""
    stem = re.sub(
        r"[^a-z0-9.-]+", "-", f"{config.project_id or config.env_id}-{config.variant or config.algo_id}".lower()
    ).strip("-.")
    return f"{stem[:36]}-s{config.seed}-{time.strftime('%Y%m%d-%H%M%S')}"


@dataclass(frozen=True)
class RunState:
    """How a run is, and why."""

    status: str
    reason: str = ""
    pid: int | None = None
    """The process that trains it."""
    host: str | None = None
    """Where it trains."""
    seen: bool = True
    """Whether that was seen from here; of another machine only what it wrote is known."""


@dataclass(frozen=True)
class Run:
    """One run on disk."""

    dir: Path

    @classmethod
    def create(cls, runs_dir: Path, config: Config, run_id: str | None = None) -> Run:
        """Make the directory of a new run; an id that is taken is an error, a generated one is made unique."""
        return cls._make(runs_dir, check_run_id(run_id) if run_id else new_run_id(config), is_given=run_id is not None)

    @classmethod
    def create_repetition(cls, runs_dir: Path, of: str, run_id: str | None = None) -> Run:
        """Make the directory of a run that repeats another, named after it unless an id is given."""
        wanted = check_run_id(run_id) if run_id else f"{of[: 64 - len(REPEATED) - 4]}{REPEATED}"
        return cls._make(runs_dir, wanted, is_given=run_id is not None)

    @classmethod
    def _make(cls, runs_dir: Path, wanted: str, *, is_given: bool) -> Run:
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            for attempt in range(1, 1000):
                candidate = wanted if attempt == 1 else f"{wanted}-{attempt}"
                try:
                    (runs_dir / candidate).mkdir()
                    return cls(runs_dir / candidate)
                except FileExistsError:
                    if is_given:
                        raise GymlabError(
                            f"Run {wanted!r} exists already in {runs_dir}. Choose another --run-id, or go on with it: --resume {wanted}."
                        ) from None
        except OSError as error:
            raise GymlabError(
                f"Cannot write to the runs directory {runs_dir}: {error}. Choose another with --runs-dir or GYMLAB_RUNS."
            ) from error
        raise GymlabError(f"Too many runs named {wanted} in {runs_dir}.")

    @property
    def id(self) -> str:
        """Name of the run."""
        return self.dir.name

    @property
    def checkpoints(self) -> CheckpointManager:
        """The run's checkpoints."""
        from gymlab.engine.checkpoint import CheckpointManager

        return CheckpointManager(self.dir / "checkpoints")

    @property
    def config_path(self) -> Path:
        """The config that the run was started with; config.json, which people edit, in a run from before they could."""
        started = self.dir / STARTED
        return started if started.is_file() else self.dir / CONFIG

    @cached_property
    def config_data(self) -> dict[str, Any]:
        """The config that the run was started with, as it was written; `gymlab.engine.train.run_config` validates it."""
        path = self.config_path
        if not path.is_file():
            raise CheckpointError(
                f"{path} is no regular file: {self.dir} is not a run that can be read. "
                f"`gymlab runs prune {self.id} --status damaged` moves it to the trash."
            )
        other = CONFIG if path.name == STARTED else STARTED
        copy = f"if {other} beside it is whole, copy that over it, or " if (self.dir / other).is_file() else ""
        return read_mapping(path, f"{copy}move the run to the trash: gymlab runs prune {self.id} --status damaged")

    @property
    def record(self) -> dict[str, Any]:
        """What run.json says: status, times, counters, results, versions; what is of a wrong kind is left out."""
        fix = f"delete it, then `gymlab train --resume {self.id}` writes a new one"
        try:
            return known_fields(read_mapping(self.dir / RECORD, fix))
        except FileNotFoundError:
            return {}

    @property
    def status(self) -> str:
        """running, finished, stopped, crashed, or incomplete for a run that never began."""
        return self.state.status

    @property
    def state(self) -> RunState:
        """The status with its reason, as far as the record, the lock and the process tell."""
        return state_of(self, self.record)

    def update_record(self, **fields: Any) -> None:
        """Merge fields into run.json; several processes may do so at a time."""
        refuse_if_gone(self.dir)
        with _exclusively(self.dir / ".run.json.lock"):
            write_json(self.dir / RECORD, {**self.record, **fields})

    @property
    def last_news(self) -> float:
        """When the run last wrote anything: the time of its newest file."""
        times = [0.0]
        for name in (".", RECORD, "metrics.csv", "checkpoints"):
            with suppress(FileNotFoundError):
                times.append((self.dir / name).stat().st_mtime)
        return max(times)

    @property
    def metrics(self) -> dict[str, list[float | None]]:
        """metrics.csv by column."""
        from gymlab.metrics.csv_file import read_metrics

        return read_metrics(self.dir / "metrics.csv")

    @property
    def result(self) -> dict[str, Any]:
        """The final evaluation as it is judged: mean, ci95, n, solved, note; empty if the run has none."""
        from gymlab.metrics.results import judge

        result = self.record.get("result")
        return judge(result, self.config_data) if result else {}

    @cached_property
    def agent(self) -> Agent:
        """The agent of the last checkpoint."""
        from gymlab.engine.agent import Agent

        return Agent.from_run(self)

    def mark_last(self) -> None:
        """Make `@last` mean this run."""
        relative_link(self.dir.parent / LAST, self.dir.name)


def state_of(run: Run, record: Mapping[str, Any]) -> RunState:
    """What a record says, corrected by who holds the run's lock and by whether its process lives."""
    lock = look_at(run.dir)
    if lock.held:
        return RunState("running", pid=lock.pid, host=lock.host)
    status, reason = str(record.get("status") or "incomplete"), str(record.get("reason") or "")
    if status == "incomplete":
        return RunState(status, "its creation was cut short")
    if status != "running":
        return RunState(status, reason)
    host, same_machine = record.get("host"), record.get("boot") is not None and record.get("boot") == boot_id()
    if host != os.uname().nodename and host is not None and not (same_machine and lock.held is False):
        return RunState("running", f"on {host}, as far as known from here", record.get("pid"), host, seen=False)
    if lock.held is False or not is_alive(record):
        return RunState("crashed", ENDED_WITHOUT_A_WORD)
    return RunState("running", pid=record.get("pid"), host=host)


def refuse_if_training(run: Run) -> None:
    """An error when the run is training; on another host, when it has written something lately."""
    state = run.state
    if state.status != "running":
        return
    silent = time.time() - run.last_news
    if state.seen:
        raise GymlabError(f"Run {run.id} is still training (process {state.pid} on {state.host}). Stop it first.")
    if silent < SILENT_SECONDS:
        raise GymlabError(
            f"Run {run.id} is training on {state.host} (process {state.pid}), as far as known from here: it last wrote something "
            f"{silent:.0f} s ago. Stop it there; if that machine is gone, try again when {SILENT_SECONDS / 60:.0f} minutes have passed."
        )
    logger.warning("%s was training on %s and has been silent for %.0f minutes.", run.id, state.host, silent / 60)


def all_runs(runs_dir: Path) -> Iterator[Run]:
    """Every run below the directory, oldest first; links, hidden directories and what cannot be read are passed over."""
    found = []
    for path in run_directories(runs_dir):
        try:
            found.append(((path / "config.json").stat().st_mtime, path))
        except OSError:
            continue
    for _, path in sorted(found):
        yield Run(path)


def is_run_file(path: Path) -> bool:
    """Whether a config file is a run's, which may be somebody else's: runs write JSON, people write YAML."""
    return path.suffix == ".json" or (path.suffix in (".yaml", ".yml") and (path.parent / CONFIG).exists())


def run_directories(runs_dir: Path) -> list[Path]:
    """Directories that may be runs, by name: not hidden, and no links, which could lead out."""
    try:
        with os.scandir(runs_dir) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise GymlabError(
            f"Cannot read the runs directory {runs_dir}: {error.strerror}. Give another with --runs-dir."
        ) from error
    return [runs_dir / name for name in sorted(names)]


def last_run_id(runs_dir: Path) -> str | None:
    """Name that `@last` points at, whether that run is still there or not; None without the link or if it leads away."""
    try:
        target = os.readlink(runs_dir / LAST)
    except OSError:
        return None
    return target if RUN_ID.fullmatch(target) else None


def find_run(reference: str, runs_dir: Path) -> tuple[Run, str]:
    """`id`, `@last`, `id/@best`, `id/epoch=13`, `@last/@best` or a run's directory -> the run and which checkpoint."""
    name, which = reference.rstrip("/"), LAST
    head, _, tail = name.rpartition("/")
    if head and (tail in (LAST, "@best") or tail.startswith("epoch=")):
        name, which = head, tail
    directory = Path(name)
    if name == LAST:
        return _last_run(runs_dir), which
    if len(directory.parts) > 1 and _has_config(directory):
        return Run(directory), which
    if RUN_ID.fullmatch(name):
        directory = runs_dir / name
        if directory.is_symlink() and not directory.resolve().is_relative_to(runs_dir.resolve()):
            raise CheckpointError(
                f"{directory} is a link that leads out of {runs_dir}. Name the directory itself: {directory.resolve()}."
            )
        if _has_config(directory):
            return Run(directory), which
        if directory.is_dir():
            status = "damaged" if os.path.lexists(directory / CONFIG) else "incomplete"
            raise CheckpointError(
                f"{directory} is no run that can be used: it has no config.json that is a file. "
                f"`gymlab runs prune {name} --status {status}` removes it."
            )
    known = [run.id for run in all_runs(runs_dir)]
    raise CheckpointError(
        f"No run {name!r} in {runs_dir}. {did_you_mean(name, known)} `gymlab runs` shows what is there."
    )


def _last_run(runs_dir: Path) -> Run:
    """The run that `@last` means; where the link leads nowhere, the newest one, said aloud."""
    name = last_run_id(runs_dir)
    if name is not None and _has_config(runs_dir / name) and not (runs_dir / name).is_symlink():
        return Run(runs_dir / name)
    runs = list(all_runs(runs_dir))
    if not runs:
        raise CheckpointError(f"There is no run in {runs_dir} yet. Train one first, or give --runs-dir.")
    if (runs_dir / LAST).is_symlink():
        gone = os.readlink(runs_dir / LAST)
        logger.warning("@last points at %s, which is no run any more; the newest run is taken: %s.", gone, runs[-1].id)
    else:
        logger.warning("%s has no @last; the newest run is taken: %s.", runs_dir, runs[-1].id)
    return runs[-1]


def _has_config(directory: Path) -> bool:
    try:
        return (directory / "config.json").is_file()
    except PermissionError as error:
        raise CheckpointError(
            f"{directory} cannot be read: {error.strerror}. Ask its owner, or `chmod u+rwx` it."
        ) from error


@contextmanager
def _exclusively(path: Path) -> Iterator[None]:
    """One process and thread at a time; where there are no locks, without."""
    descriptor = open_plain(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            logger.debug("%s cannot be locked: %s", path, error)
        yield
    finally:
        # Unlocked by name: a worker forked meanwhile has this descriptor too, and closing ours would leave it locked.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def sitting_times(run: Run) -> dict[str, float | None]:
    """What a record says of time as a sitting begins: when it did, and the wall time of those before it.

    That is not known where one of them was killed; nor is the whole, until this one has come to its end.
    """
    record = run.record
    resumed = record.get("resumed") or []
    if not resumed:
        return {"sitting_began": record.get("started"), "wall_before": 0.0, "wall_seconds": None}
    return {
        "sitting_began": resumed[-1].get("time"),
        "wall_before": record.get("wall_seconds"),
        "wall_seconds": None,
    }


def wall_seconds(run: Run) -> float | None:
    """Wall time of the run up to now, over all sittings, from the making of the environments on; None where that is not known."""
    record = run.record
    began, before = record.get("sitting_began"), record.get("wall_before")
    return None if began is None or before is None else before + max(0.0, time.time() - began)


def versions() -> dict[str, str]:
    """Versions that matter to repeat a run, and the commit of gymlab's own source where that is known."""
    found = {}
    for package in ("gymlab", "torch", "gymnasium", "numpy", "lightning-fabric"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    commit = source_commit()
    return found | ({"commit": commit} if commit else {})
