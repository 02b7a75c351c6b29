"""The one door through which a run tells the outside how it goes: console, CSV, log file and trackers are its sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gymlab.errors import RunGone
from gymlab.metrics.names import HasCounters, counter_row
from gymlab.metrics.redact import redact_text
from gymlab.metrics.styles import GlobalStyle, MetricStyles

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gymlab.metrics.alerts import Alert
    from gymlab.metrics.report import ReportData


class Sink:
    """Somewhere metrics go. Each method does nothing unless a sink has a use for it."""

    def log(self, row: Mapping[str, float], env_steps: int) -> None:
        """Take an epoch's metrics, counters among them."""

    def log_video(self, path: Path, name: str, env_steps: int) -> None:
        """Take a finished video file."""

    def log_text(self, message: str) -> None:
        """Take a line for the record."""

    def notice(self, message: str) -> None:
        """Take something the user should see now."""

    def alert(self, alert: Alert) -> None:
        """Take something that has begun to look wrong."""

    def checkpoint(self, message: str) -> None:
        """Take the news that a checkpoint was written."""

    def set_phase(self, phase: str) -> None:
        """Take the name of what is going on."""

    def show(self, renderable: RenderableType) -> None:
        """Take something to print that is not part of the record."""

    def report(self, summary: ReportData) -> None:
        """Take the end of the run."""

    def flush(self) -> None:
        """Put everything taken so far on disk."""

    def close(self) -> None:
        """Finish; nothing follows."""


class Monitor:
    """Hands everything to each sink, in order. Notices are kept for the report; secrets in messages are blanked."""

    def __init__(self, sinks: Sequence[Sink], styles: MetricStyles | None = None) -> None:
        self.sinks = tuple(sinks)
        self.styles = styles or MetricStyles({}, GlobalStyle())
        """How metrics are shown, and the bounds they are judged by."""
        self.notices: list[str] = []
        self._closed = False

    def log(self, row: Mapping[str, float], counters: HasCounters) -> None:
        """Log an epoch: `row` of full names, to which the counters are added."""
        full = counter_row(counters)
        full.update(row)
        for sink in self.sinks:
            sink.log(full, counters.env_steps)

    def log_video(self, path: Path, name: str, env_steps: int) -> None:
        """Log a finished video file under `name`."""
        for sink in self.sinks:
            sink.log_video(path, name, env_steps)

    def log_text(self, message: str) -> None:
        """Write a line to the record (run.log), not to the screen."""
        message = redact_text(message)
        for sink in self.sinks:
            sink.log_text(message)

    def notice(self, message: str) -> None:
        """Tell the user: on the screen, in the record and in the report; the same notice is kept once."""
        message = redact_text(message)
        if message not in self.notices:
            self.notices.append(message)
        for sink in self.sinks:
            sink.notice(message)

    def alert(self, alert: Alert) -> None:
        """Tell the user that something has begun to look wrong: on the screen and in the record."""
        alert = replace(alert, message=redact_text(alert.message))
        for sink in self.sinks:
            sink.alert(alert)

    def checkpoint(self, message: str) -> None:
        """Say that a checkpoint was written."""
        message = redact_text(message)
        for sink in self.sinks:
            sink.checkpoint(message)

    def set_phase(self, phase: str) -> None:
        """Say what is going on, e.g. a phase's name or `evaluation 40/100`."""
        for sink in self.sinks:
            sink.set_phase(phase)

    def show(self, renderable: RenderableType) -> None:
        """Print above the live table; nothing in quiet mode."""
        if isinstance(renderable, str):
            renderable = redact_text(renderable)
        for sink in self.sinks:
            sink.show(renderable)

    def report(self, summary: ReportData) -> None:
        """Show the end of the run, also in quiet mode."""
        for sink in self.sinks:
            sink.report(summary)

    def flush(self) -> None:
        """Put everything logged so far on disk; called before a checkpoint says that it is written."""
        for sink in self.sinks:
            sink.flush()

    def close(self) -> None:
        """Close every sink, the others too when one fails. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        with ExitStack() as stack:
            for sink in self.sinks:
                stack.callback(sink.close)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except (OSError, RunGone):
            # On a full disk the last lines cannot be written; what ended the run is the better message.
            if kind is None:
                raise
