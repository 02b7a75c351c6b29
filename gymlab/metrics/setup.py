"""Opens the monitor of a run with the sinks that its config asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.metrics.csv_file import CsvSink
from gymlab.metrics.monitor import Monitor, Sink
from gymlab.metrics.runlog import RunLogSink, run_log_enabled
from gymlab.metrics.styles import SHIPPED, load_styles

if TYPE_CHECKING:
    from rich.console import Console

USER_STYLES = Path("conf") / "metrics.yaml"
"""A user's own styles, below the current directory."""


def open_monitor(
    run_directory: Path,
    *,
    run_id: str,
    title: str,
    project: str,
    config: Mapping[str, Any],
    budget: int | None = None,
    threshold: float | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
    wandb: bool = False,
    style_paths: Sequence[Path] = (SHIPPED, USER_STYLES),
    console: Console | None = None,
) -> Monitor:
    """metrics.csv and run.log always, the console (which keeps silent when quiet), trackers when asked for.

    Trackers come first, so that a missing package is found before anything is written.
    """
    from gymlab.metrics.console import ConsoleSink

    styles = load_styles(style_paths)
    trackers: list[Sink] = []
    notices: list[str] = []
    if tensorboard:
        from gymlab.metrics.tensorboard import TensorBoardSink

        trackers.append(TensorBoardSink(run_directory / "tensorboard"))
    if wandb:
        from gymlab.metrics.wandb import WandbSink

        wandb_sink = WandbSink(run_directory, project=project, run_id=run_id, config=config)
        trackers.append(wandb_sink)
        notices.append(wandb_sink.where)
    sinks: list[Sink] = [CsvSink(run_directory / "metrics.csv")]
    if run_log_enabled():
        sinks.append(RunLogSink(run_directory / "run.log"))
    screen = ConsoleSink(title=title, budget=budget, threshold=threshold, quiet=quiet, styles=styles, console=console)
    monitor = Monitor([*sinks, *trackers, screen], styles)
    for notice in notices:
        monitor.notice(notice)
    return monitor
