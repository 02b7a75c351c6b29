"""A run: the directory that holds everything about one training, and how it is found again."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.config.schema import Config
from gymlab.engine.files import read_json, relative_link, write_json
from gymlab.errors import CheckpointError, GymlabError, did_you_mean

if TYPE_CHECKING:
    from gymlab.engine.agent import Agent
    from gymlab.engine.checkpoint import CheckpointManager

RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
LAST = "@last"
CONFIG = "config.json"
"""Settings as they are wanted now: may be edited while the run trains."""
STARTED = "config.start.json"
"""The config that the run was started with."""


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
class Run:
    """One run on disk."""

    dir: Path

    @classmethod
    def create(cls, runs_dir: Path, config: Config, run_id: str | None = None) -> Run:
        """Make the directory of a new run; an id that is taken is an error, a generated one is made unique."""
        wanted = check_run_id(run_id) if run_id else new_run_id(config)
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            for attempt in range(1, 1000):
                candidate = wanted if attempt == 1 else f"{wanted}-{attempt}"
                try:
                    (runs_dir / candidate).mkdir()
                    return cls(runs_dir / candidate)
                except FileExistsError:
                    if run_id:
                        raise GymlabError(
                            f"Run {run_id!r} exists already in {runs_dir}. Choose another --run-id, or go on with it: --resume {run_id}."
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
        if not self.config_path.is_file():
            raise CheckpointError(f"{self.dir} is not a run: it has no {CONFIG}.")
        return read_json(self.config_path)

    @property
    def record(self) -> dict[str, Any]:
        """What run.json says: status, times, counters, results, versions."""
        path = self.dir / "run.json"
        return read_json(path) if path.is_file() else {}

    @property
    def status(self) -> str:
        """running, finished, stopped or crashed; a run whose process is gone without a word has crashed."""
        record = self.record
        status = record.get("status", "unknown")
        if status == "running" and not _alive(record.get("pid"), record.get("host")):
            return "crashed"
        return status

    def update_record(self, **fields: Any) -> None:
        """Merge fields into run.json."""
        write_json(self.dir / "run.json", {**self.record, **fields})

    @property
    def metrics(self) -> dict[str, list[float | None]]:
        """metrics.csv by column."""
        from gymlab.metrics.csv_file import read_metrics

        return read_metrics(self.dir / "metrics.csv")

    @property
    def result(self) -> dict[str, Any]:
        """The final evaluation: mean, ci95, n, solved; empty if the run has none."""
        return self.record.get("result") or {}

    @cached_property
    def agent(self) -> Agent:
        """The agent of the last checkpoint."""
        from gymlab.engine.agent import Agent

        return Agent.from_checkpoint(self, self.checkpoints.find())

    def mark_last(self) -> None:
        """Make `@last` mean this run."""
        relative_link(self.dir.parent / LAST, self.dir.name)


def all_runs(runs_dir: Path) -> Iterator[Run]:
    """Every run below the directory, oldest first."""
    if not runs_dir.is_dir():
        return
    found = [
        path for path in runs_dir.iterdir() if path.is_dir() and not path.is_symlink() and (path / CONFIG).is_file()
    ]
    yield from sorted(map(Run, found), key=lambda run: run.config_path.stat().st_mtime)


def find_run(reference: str, runs_dir: Path) -> tuple[Run, str]:
    """`id`, `@last`, `id/@best`, `id/epoch=13`, `@last/@best` or a run's directory -> the run and which checkpoint."""
    name, which = reference.rstrip("/"), LAST
    head, _, tail = name.rpartition("/")
    if head and (tail in (LAST, "@best") or tail.startswith("epoch=")):
        name, which = head, tail
    directory = Path(name)
    if name == LAST:
        link = runs_dir / LAST
        if not link.exists():
            raise CheckpointError(f"There is no run in {runs_dir} yet. Train one first, or give --runs-dir.")
        return Run(runs_dir / os.readlink(link)), which
    if len(directory.parts) > 1 and (directory / CONFIG).is_file():
        return Run(directory), which
    if RUN_ID.fullmatch(name) and (runs_dir / name / CONFIG).is_file():
        return Run(runs_dir / name), which
    known = [run.id for run in all_runs(runs_dir)]
    raise CheckpointError(
        f"No run {name!r} in {runs_dir}. {did_you_mean(name, known)} `gymlab list runs` shows what is there."
    )


def versions() -> dict[str, str]:
    """Versions that matter to repeat a run, and the commit of the code when it is a git checkout."""
    found = {}
    for package in ("gymlab", "torch", "gymnasium", "numpy", "lightning-fabric"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return found
    if commit.returncode == 0:
        found["commit"] = commit.stdout.strip()
    return found


def _alive(pid: int | None, host: str | None) -> bool:
    if pid is None or host != os.uname().nodename:
        return host is not None and host != os.uname().nodename
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
