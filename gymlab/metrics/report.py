"""The end of a run, for people: report.md, the panel in the terminal, and the table of results over seeds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from gymlab.metrics.redact import redact_text
from gymlab.metrics.results import beside_text, return_text
from gymlab.metrics.statistics import estimate
from gymlab.metrics.terminal import clean

if TYPE_CHECKING:
    from rich.panel import Panel

    from gymlab.metrics.alerts import Recap


NOT_RECORDED = "not recorded"
DIRTY = "+dirty"
"""Ends a commit whose files had been changed."""
RESULTS_HEAD = (
    "| experiment | return over seeds [95% interval] (range below 5 seeds) | seeds | reached | env steps | "
    "wall time (training) | command | commit | date | processor |"
)


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that the report says. Paths are written as they are given: relative ones keep the report movable."""

    experiment: str
    """`<env>:<variant>`"""
    run_id: str
    run_directory: str
    algorithm: str
    environment: str
    seed: int
    status: str
    """finished, stopped or crashed, with the reason."""
    result: Mapping[str, Any] | None
    """What the final agent's evaluation found, as `results.judge` gives it; None for a run that was not evaluated."""
    env_steps: int
    updates: int
    episodes: int
    wall_seconds: float | None
    """Seconds of the whole run, the making of environments, the last evaluation and the video included; None where it is not known."""
    training_seconds: float
    """Seconds of the training loop, with its evaluations."""
    command: str
    """The command that trains the run anew."""
    threshold: float | None = None
    """The return that means solved."""
    deterministic: bool | None = None
    """Whether the evaluated agent took its most likely actions."""
    evaluated_checkpoint: str | None = None
    best_checkpoint: str | None = None
    last_checkpoint: str | None = None
    video: str | None = None
    curve: str | None = None
    report: str | None = None
    commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    notices: Sequence[str] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)
    """What the algorithm learned, drawn: paths by title."""
    alerts: Sequence[Recap] = ()
    """What looked wrong during the run."""

    @property
    def solved(self) -> bool | None:
        """Whether the mean return reached the threshold; None where that cannot be said."""
        return None if self.result is None else self.result["solved"]

    @property
    def verdict(self) -> str:
        """solved, not solved, or why that cannot be said."""
        return "not evaluated" if self.result is None else str(self.result["verdict"])

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second of training."""
        return self.env_steps / self.training_seconds if self.training_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """One finished run in the table of results."""

    experiment: str
    seed: int
    value: float
    """Mean return over the final agent's evaluation episodes."""
    env_steps: int
    training_seconds: float
    command: str
    commit: str | None = None
    threshold: float | None = None
    """The return that it is held against."""
    own_threshold: float | None = None
    """The return that counts as solved in the task itself."""
    of_return: bool = True
    """Whether `value` and `threshold` are returns; of another metric the task has no threshold."""
    wall_seconds: float | None = None
    started: float | None = None
    """When it began, in seconds since 1970."""
    processor: str | None = None


def format_duration(seconds: float) -> str:
    """8.4 s, 2 min 05 s, 1 h 02 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def duration_text(seconds: float | None) -> str:
    """A duration, if somebody has written it down."""
    return NOT_RECORDED if seconds is None else format_duration(seconds)


def render_report(summary: ReportData) -> str:
    """report.md."""
    lines = [f"# {summary.experiment}: {summary.verdict}", ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in _report_rows(summary)]
    if summary.curve:
        lines += ["", f"![Learning curve]({summary.curve})"]
    if summary.video:
        lines += ["", f"[Video of the agent]({summary.video})"]
    for title, picture in summary.pictures.items():
        lines += ["", f"![{title}]({picture})"]
    lines += ["", "## Repeat it", "", "```", summary.command, "```"]
    if summary.alerts:
        lines += ["", "## Alerts", "", *_alert_table(summary.alerts)]
    if summary.notices:
        lines += ["", "## Notices", "", *(f"- {notice}" for notice in summary.notices)]
    if summary.versions:
        listed = ", ".join(f"{name} {version}" for name, version in summary.versions.items() if name != "commit")
        lines += ["", "## Made with", "", listed]
    return clean(redact_text("\n".join(lines) + "\n"))


def _alert_table(alerts: Sequence[Recap]) -> list[str]:
    lines = ["| alert | env steps | how often | message | tip |", "|---|---|---|---|---|"]
    for alert in alerts:
        held = "1 epoch" if alert.epochs == 1 else f"{alert.epochs:,} epochs"
        cells = [
            f"`{alert.id}`",
            f"{alert.first_env_steps:,} to {alert.last_env_steps:,}",
            f"{_times(alert.count)}, {held} in all",
            alert.message,
            alert.tip,
        ]
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return lines


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _report_rows(summary: ReportData) -> list[tuple[str, str]]:
    rows = [("run", f"`{summary.run_id}`"), ("status", summary.status)]
    rows.append(("return", _return_text(summary)))
    rows.append(("environment", summary.environment))
    rows.append(("algorithm", f"{summary.algorithm}, seed {summary.seed}"))
    rows.append(("env steps", f"{summary.env_steps:,} ({summary.episodes:,} episodes, {summary.updates:,} updates)"))
    rows.append(("wall time", _time_text(summary)))
    optional = (("best checkpoint", summary.best_checkpoint), ("last checkpoint", summary.last_checkpoint))
    rows += [(name, f"`{value}`") for name, value in optional if value]
    if summary.commit:
        rows.append(("commit", f"`{summary.commit[:12]}`"))
    return rows


def _return_text(summary: ReportData) -> str:
    if summary.result is None:
        return "not evaluated"
    beside = beside_text(summary.result)
    text = return_text(summary.result) + (f" ({beside})" if beside else "")
    how = {True: "deterministic actions", False: "sampled actions", None: ""}[summary.deterministic]
    which = f"checkpoint {summary.evaluated_checkpoint}" if summary.evaluated_checkpoint else ""
    return "; ".join(part for part in (text, how, which) if part)


def _time_text(summary: ReportData) -> str:
    training = f"{format_duration(summary.training_seconds)} of training, {summary.steps_per_second:,.0f} env steps/s"
    return f"{duration_text(summary.wall_seconds)} ({training})"


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def report_panel(summary: ReportData) -> Panel:
    """The end of the run in the terminal."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    colour = {True: "green", False: "yellow", None: "cyan"}[summary.solved]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    found = Text("not evaluated", style="bold")
    if summary.result is not None:
        found = Text.assemble((return_text(summary.result), "bold"), f"  {beside_text(summary.result)}")
    grid.add_row("return", found)
    grid.add_row("env steps", f"{summary.env_steps:,}")
    grid.add_row("wall time", _time_text(summary))
    for name, value in _places(summary):
        if value:
            grid.add_row(name, Text(redact_text(value)))
    if summary.alerts:
        told = dict.fromkeys(alert.id for alert in summary.alerts)
        times = {name: sum(alert.count for alert in summary.alerts if alert.id == name) for name in told}
        named = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in times.items())
        grid.add_row("alerts", Text(f"{sum(times.values())}: {named}", style="yellow"))
    for notice in summary.notices:
        grid.add_row("notice", Text(redact_text(notice), style="yellow"))
    title = Text.assemble((summary.experiment, "bold"), "  ", (summary.verdict, f"bold {colour}"))
    if not summary.status.startswith("finished"):
        title.append(f"  {summary.status}", style="bold red")
    return Panel(grid, title=title, title_align="left", border_style=colour, expand=False)


def _places(summary: ReportData) -> list[tuple[str, str | None]]:
    """Where things are; checkpoints are named from the run's directory, which stands above them."""
    best, last = (
        path and path.removeprefix(f"{summary.run_directory}/")
        for path in (summary.best_checkpoint, summary.last_checkpoint)
    )
    checkpoints = [("best, last", best)] if best == last else [("best", best), ("last", last)]
    ends = [("video", summary.video), ("report", summary.report), ("repeat", summary.command)]
    return [("run", summary.run_directory), *checkpoints, *ends]


def results_table(runs: Sequence[RunResult]) -> str:
    """The results page's table: one line an experiment, over its seeds, in the order of first appearance."""
    groups: dict[str, list[RunResult]] = {}
    for run in runs:
        groups.setdefault(run.experiment, []).append(run)
    lines = [RESULTS_HEAD, "|---" * (RESULTS_HEAD.count(" | ") + 1) + "|"]
    for experiment, group in groups.items():
        group = sorted(group, key=lambda run: run.seed)
        cells = [
            f"`{experiment}`",
            str(estimate([run.value for run in group])),
            _seeds_text([run.seed for run in group]),
            _reached_text(group),
            f"{fmean(run.env_steps for run in group):,.0f}",
            times_text(_mean([run.wall_seconds for run in group]), fmean(run.training_seconds for run in group)),
            ", ".join(f"`{command}`" for command in dict.fromkeys(run.command for run in group)),
            _each(
                f"`{run.commit.removesuffix(DIRTY)[:9]}{DIRTY * run.commit.endswith(DIRTY)}`" if run.commit else None
                for run in group
            ),
            _each(
                time.strftime("%Y-%m-%d", time.gmtime(run.started)) if run.started is not None else None
                for run in group
            ),
            _each(run.processor for run in group),
        ]
        lines.append("| " + " | ".join(_cell(clean(redact_text(cell))) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _reached_text(group: Sequence[RunResult]) -> str:
    judged = [run for run in group if run.threshold is not None]
    if not judged:
        return "–"
    reached = sum(run.value >= run.threshold for run in judged if run.threshold is not None)
    thresholds = ", ".join(dict.fromkeys(f"{run.threshold:g}" for run in judged))
    own = dict.fromkeys(own_threshold_text(run.threshold, run.own_threshold, of_return=run.of_return) for run in judged)
    return f"{reached}/{len(judged)} ≥ {thresholds} ({', '.join(own)})"


def own_threshold_text(threshold: float | None, own: float | None, *, of_return: bool = True) -> str:
    """How the return that something is held against stands to the one that counts as solved."""
    if own is None:
        return "the task has none of its own"
    if not of_return:
        return f"the task's own: a return of {own:g}"
    return "the task's own" if own == threshold else f"the task's own: {own:g}"


def times_text(wall: float | None, training: float) -> str:
    """Wall time, with that of training behind it."""
    return f"{duration_text(wall)} ({format_duration(training)})"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _each(texts: Iterable[str | None]) -> str:
    """Different texts, each once; what nobody wrote down is said to be so."""
    return ", ".join(dict.fromkeys(NOT_RECORDED if text is None else text for text in texts))


def _seeds_text(seeds: Sequence[int]) -> str:
    """0-4 for seeds without a gap, else 0, 2, 5."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}-{seeds[-1]}"
    return ", ".join(str(seed) for seed in seeds)
