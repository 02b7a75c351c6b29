"""`gymlab train --seeds 0-4,7 --jobs 2`: a process for each seed, a line of progress for each, a table at the end."""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from gymlab.cli.output import error_screen, screen, show_json, show_notices, table
from gymlab.errors import GymlabError
from gymlab.metrics import names
from gymlab.metrics.csv_file import last_row
from gymlab.metrics.report import format_duration
from gymlab.metrics.results import return_text

if TYPE_CHECKING:
    from gymlab.config.schema import Config

POLL_SECONDS = 0.2
PROGRESS_SECONDS = 2.0
ERROR_LINES = 12
OWN_OPTIONS = {"--seeds": 1, "--jobs": 1, "--run-id": 1, "--recorded-command": 1, "--json": 0, "-q": 0, "--quiet": 0}
"""Options that the parent answers for, with the number of values each takes."""


def parse_seeds(text: str) -> list[int]:
    """`0-4,7` as a list, in the order given; a seed that is given twice is refused."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise GymlabError(
                f"--seeds {text!r} is not a list of seeds: {part!r} should be a number or a range, e.g. --seeds 0-4,7."
            )
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    twice = next((seed for position, seed in enumerate(seeds) if seed in seeds[:position]), None)
    if twice is not None:
        raise GymlabError(
            f"--seeds {text!r} names seed {twice} twice: the same training would count as two. Give each seed once."
        )
    return seeds


@dataclass
class SeedRun:
    """The training of one seed in a process of its own."""

    seed: int
    run_id: str
    arguments: list[str]
    scratch: Path
    """Where the process writes its output and errors."""
    status: str = "waiting"
    summary: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    code: int | None = None
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin; in a process group of its own, so that a Ctrl-C in the terminal reaches it once, from us."""
        command = [sys.executable, "-m", "gymlab", "train", *self.arguments]
        with self._file("out").open("wb") as out, self._file("err").open("wb") as err:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0)
        self.status = "running"

    def poll(self) -> bool:
        """Whether the process has ended since the last look; if so, what it left is read."""
        if self._process is None or self.code is not None or self._process.poll() is None:
            return False
        self.code = self._process.returncode
        try:
            self.summary = json.loads(self._file("out").read_bytes())
            self.status = self.summary["status"]
        except (json.JSONDecodeError, KeyError):
            self.summary = {}
            errors = self._file("err").read_text(encoding="utf-8", errors="replace")
            self.status = "failed"
            self.error = "\n".join(errors.strip().splitlines()[-ERROR_LINES:]) or f"ended with code {self.code}"
        return True

    def _file(self, suffix: str) -> Path:
        return self.scratch / f"{self.seed}.{suffix}"

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on while the process lives."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self) -> None:
        """Wait for the end of a process that was started."""
        if self._process is not None:
            self._process.wait()

    def row(self) -> dict[str, Any]:
        """The seed in plain values."""
        if self.summary:
            return self.summary
        return {"seed": self.seed, "run": self.run_id, "status": self.status, "error": self.error}


class SeedTrainer:
    """Keeps at most `jobs` processes going until every seed has had its turn or somebody says stop."""

    def __init__(self, runs: list[SeedRun], jobs: int, runs_dir: Path, budget: int | None) -> None:
        self.runs = runs
        self.jobs = jobs
        self.runs_dir = runs_dir
        self.stopped_by: signal.Signals | None = None
        self._console = error_screen()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[news]}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[int, TaskID] = {}
        for run in runs:
            self._tasks[run.seed] = self._progress.add_task(
                f"seed {run.seed}", total=budget, start=False, news="waiting"
            )

    def train(self) -> None:
        """Train all seeds; the signals that end it are passed on once each."""
        looked_at = 0.0
        with self._signals(), self._progress:
            try:
                while self._busy():
                    self._start_some()
                    for run in self.runs:
                        if run.poll():
                            self._tell_end(run)
                    if time.monotonic() - looked_at > PROGRESS_SECONDS:
                        self._look_at_progress()
                        looked_at = time.monotonic()
                    time.sleep(POLL_SECONDS)
            finally:
                for run in self.runs:
                    run.send(signal.SIGTERM)
                    run.wait()

    def _busy(self) -> bool:
        waiting = any(run.status == "waiting" for run in self.runs) and self.stopped_by is None
        return waiting or any(run.status == "running" for run in self.runs)

    def _start_some(self) -> None:
        running = sum(run.status == "running" for run in self.runs)
        for run in self.runs:
            if run.status == "waiting" and running < self.jobs and self.stopped_by is None:
                run.start()
                running += 1
                self._progress.start_task(self._tasks[run.seed])
                self._tell(run, "starting")

    def _look_at_progress(self) -> None:
        for run in self.runs:
            if run.status == "running" and (row := last_row(self.runs_dir / run.run_id / "metrics.csv")):
                steps, score = row.get(names.ENV_STEPS, 0.0), row.get(names.episode_return("train"))
                news = f"{steps:,.0f} steps" + (f", return {score:.1f}" if score is not None else "")
                self._progress.update(self._tasks[run.seed], completed=steps, news=news)

    def _tell_end(self, run: SeedRun) -> None:
        steps = run.summary.get("env_steps")
        if run.status == "failed":
            lines = run.error.splitlines()
            told = (line.removeprefix("error: ") for line in lines if line.startswith("error: "))
            self._tell(run, "failed: " + next(told, lines[-1]))
        else:
            self._progress.update(self._tasks[run.seed], completed=steps, total=steps)
            self._tell(
                run, f"{run.status}: return {return_text(run.summary.get('result') or {})}, {steps or 0:,} steps"
            )

    def _tell(self, run: SeedRun, news: str) -> None:
        self._progress.update(self._tasks[run.seed], news=news)
        if not self._console.is_terminal:
            self._console.print(f"seed {run.seed}: {news}", soft_wrap=True)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM let the running seeds save and stop, and no more begin; a second Ctrl-C ends them."""

        def handle(number: int, frame: FrameType | None) -> None:
            self.stopped_by = self.stopped_by or signal.Signals(number)
            for run in self.runs:
                run.send(signal.Signals(number))

        previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def train_seeds(arguments: argparse.Namespace, command: str) -> int:
    """Train each seed, then show the table; 0 when every seed came to its end."""
    from gymlab.api import resolve
    from gymlab.cli.train import train_keywords
    from gymlab.engine.run import runs_directory

    if arguments.seed is not None:
        raise GymlabError("--seed and --seeds were both given. Leave one out.")
    seeds = parse_seeds(arguments.seeds)
    jobs = 1 if arguments.jobs is None else arguments.jobs
    if jobs < 1:
        raise GymlabError(f"--jobs {jobs}: at least one seed must train at a time.")
    config = resolve(**train_keywords(arguments)).config
    runs_dir = runs_directory(arguments.runs_dir)
    shared = _without_own_options(arguments.argv)
    with tempfile.TemporaryDirectory(prefix="gymlab-seeds-") as scratch:
        runs = []
        for seed in seeds:
            run_id = _run_id(config, seed, runs_dir, arguments.run_id)
            own = ["--seed", str(seed), "--run-id", run_id, "--quiet", "--json", "--recorded-command", command]
            runs.append(SeedRun(seed, run_id, [*shared, *own], Path(scratch)))
        trainer = SeedTrainer(runs, jobs, runs_dir, config.max_env_steps)
        trainer.train()
    summary = summarize(runs)
    if arguments.json:
        show_json(summary)
    else:
        _show(summary)
    if trainer.stopped_by is not None:
        return 128 + trainer.stopped_by
    return 0 if all(run.status == "finished" for run in runs) else 1


def summarize(runs: list[SeedRun]) -> dict[str, Any]:
    """Each seed's result, and their mean with its 95% interval over seeds; below 5 seeds, with their range."""
    from gymlab.metrics.statistics import estimate

    rows = [run.row() for run in runs]
    means = [
        row["result"]["mean"]
        for row in rows
        if row["status"] == "finished" and (row.get("result") or {}).get("mean") is not None
    ]
    experiment = next((row["experiment"] for row in rows if "experiment" in row), None)
    summary: dict[str, Any] = {"experiment": experiment, "seeds": rows, "n": len(means), "mean": None, "ci95": None}
    if means:
        found = estimate(means)
        summary |= {"mean": found.mean, "ci95": found.ci95, "min": found.smallest, "max": found.largest}
    return summary


def _show(summary: Mapping[str, Any]) -> None:
    made = table(
        str(summary["experiment"] or ""),
        "seed",
        "return [95%]",
        "solved",
        "env steps",
        "training",
        "run",
        right=("seed", "env steps", "training"),
    )
    for row in summary["seeds"]:
        result = row.get("result") or {}
        solved = {True: "yes", False: "no", None: "-"}[result.get("solved")]
        outcome = (
            return_text(result)
            if row["status"] == "finished"
            else f"{row['status']} {return_text(result) if result else ''}"
        )
        made.add_row(
            str(row["seed"]),
            outcome,
            solved,
            f"{row.get('env_steps') or 0:,}",
            format_duration(row["seconds"]) if row.get("seconds") is not None else "-",
            row["run"],
        )
    made.add_section()
    made.add_row("mean", f"{return_text(summary)} over {summary['n']} seed{'s' * (summary['n'] != 1)}", style="bold")
    console = screen()
    console.print(made)
    show_notices(
        [f"{row['run']}: {row['result']['note']}" for row in summary["seeds"] if (row.get("result") or {}).get("note")]
    )
    for row in summary["seeds"]:
        if row.get("error"):
            error_screen().print(f"seed {row['seed']} failed:\n{row['error']}", style="red", soft_wrap=True)


def _without_own_options(argv: list[str]) -> list[str]:
    """The user's arguments without those that the parent answers for."""
    kept, skip = [], 0
    for word in argv:
        if skip:
            skip -= 1
        elif word in OWN_OPTIONS:
            skip = OWN_OPTIONS[word]
        elif word.split("=")[0] not in OWN_OPTIONS:
            kept.append(word)
    return kept


def _run_id(config: Config, seed: int, runs_dir: Path, given: str | None) -> str:
    """An id that is free: the one given with the seed behind it, or one made from the experiment."""
    from gymlab.engine.run import check_run_id, new_run_id

    if given is not None:
        return check_run_id(f"{given}-s{seed}")
    wanted = new_run_id(config.model_copy(update={"seed": seed}))
    return next(
        name for name in (wanted, *(f"{wanted}-{count}" for count in range(2, 1000))) if not (runs_dir / name).exists()
    )
