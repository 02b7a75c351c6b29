"""What people look at for hours: a progress line and a live metrics table; plain lines where there is no terminal."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gymlab.metrics.monitor import Sink
from gymlab.metrics.names import EPOCH, episode_return, unfinished_count
from gymlab.metrics.redact import redact_text
from gymlab.metrics.runlog import LOGGER, checkpoint_lines_enabled
from gymlab.metrics.styles import MetricStyles, load_styles
from gymlab.metrics.table import MetricsTable, format_value
from gymlab.metrics.terminal import CleanConsole

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gymlab.metrics.alerts import Alert
    from gymlab.metrics.report import ReportData

REDRAW_SECONDS = 0.25
PLAIN_SECONDS = 10.0
DRAWING_SHARE = 0.01
"""Most of the wall time that drawing may take: a slow terminal is drawn less often."""
RATE_WINDOW = 40
"""Redraws over which the speed is measured."""

_TITLE = Style.parse("bold")
_QUIET = Style.parse("dim")
_BAR_DONE = Style.parse("green")
_BAR_LEFT = Style.parse("bright_black")
_PHASE = Style.parse("magenta")


class ConsoleSink(Sink):
    """Live on a terminal, a line now and then in a pipe or CI, nothing but the report when quiet."""

    def __init__(
        self,
        *,
        title: str = "",
        budget: int | None = None,
        threshold: float | None = None,
        quiet: bool = False,
        styles: MetricStyles | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or CleanConsole()
        self.quiet = quiet
        self.progress = Progress(title, budget, threshold, clock)
        self.styles = styles or load_styles()
        self.table = MetricsTable(self.styles)
        self._clock = clock
        self._terminal = self.console.is_terminal
        self._live: Live | None = None
        self._waiting: list[Mapping[str, float]] = []
        self._next_draw = -float("inf")
        self._closed = False
        self._warnings = _WarningHandler(self.notice)
        LOGGER.addHandler(self._warnings)

    def log(self, row: Mapping[str, float], env_steps: int) -> None:
        """Take an epoch; draw it if it is time."""
        if self.quiet or self._closed:
            return
        self._waiting.append(row)
        if self._terminal:
            if self._clock() >= self._next_draw:
                self._draw()
        elif episode_return("val") in row or self._clock() >= self._next_draw:
            self._next_draw = self._clock() + PLAIN_SECONDS
            self._take_in()
            self._print(self._plain_line(row))

    def set_phase(self, phase: str) -> None:
        """Show what is going on; in a pipe a line now and then of what says how far it is."""
        self.progress.phase = phase
        if self.quiet or self._closed or self._clock() < self._next_draw:
            return
        if self._terminal:
            self._draw()
        elif " " in phase:
            self._next_draw = self._clock() + PLAIN_SECONDS
            self._print(phase)

    def notice(self, message: str) -> None:
        """Print the notice above the table."""
        if not self.quiet:
            self._print(message, style="yellow")

    def alert(self, alert: Alert) -> None:
        """Print the alert above the table; in a pipe as one line."""
        if self.quiet:
            return
        if self._terminal:
            self.console.print(_alert_lines(alert))
        else:
            self._print(f"alert {alert.id} at {alert.env_steps:,} env steps: {alert.message} Tip: {alert.tip}")

    def checkpoint(self, message: str) -> None:
        """Print the line in a pipe; on a terminal the table has no room for it and run.log has it."""
        if not self.quiet and not self._terminal and checkpoint_lines_enabled():
            self._print(message)

    def log_video(self, path: Path, name: str, env_steps: int) -> None:
        """Print where the video is, in a pipe."""
        if not self.quiet and not self._terminal:
            self._print(f"{name}: {path}")

    def show(self, renderable: RenderableType) -> None:
        """Print above the table."""
        if not self.quiet:
            self.console.print(renderable)

    def report(self, summary: ReportData) -> None:
        """End the live table and print the report; that much is said in quiet mode too."""
        from gymlab.metrics.report import report_panel

        self.close()
        self.console.print(report_panel(summary))

    def close(self) -> None:
        """Draw a last time and give the terminal back."""
        self._closed = True
        LOGGER.removeHandler(self._warnings)
        if self._live is not None:
            self.progress.phase = ""
            self._take_in()
            self._live.update(self._frame(), refresh=True)
            self._live.stop()
            self._live = None

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        """Redraw; the next time in a fraction of a second, later if drawing took long."""
        started = self._clock()
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")
            self._live.start()
            # rich hides the cursor; a process that is killed could not bring it back.
            self.console.show_cursor(True)
        self._take_in()
        self._live.update(self._frame(), refresh=True)
        finished = self._clock()
        self._next_draw = finished + max(REDRAW_SECONDS, (finished - started) / DRAWING_SHARE)

    def _take_in(self) -> None:
        """Add the epochs since the last drawing to the table: all at once costs a fifth of one at a time."""
        rows, self._waiting = self._waiting, []
        for row in rows:
            self.table.add(row)
        if rows:
            self.progress.advance(int(rows[-1].get(self.styles.general.step_key, 0)), int(rows[-1].get(EPOCH, 0)))

    def _frame(self) -> _Frame:
        return _Frame(self.progress, self.table)

    def _plain_line(self, row: Mapping[str, float]) -> str:
        parts, whole = [self.progress.text()], unfinished_count("val") not in row
        for label, name in (("return", episode_return("train")), ("evaluation", episode_return("val"))):
            if name in row:
                improved = (
                    " (best so far)" if label == "evaluation" and whole and self.table.histories[name].improved else ""
                )
                parts.append(f"{label} {format_value(row[name], self.styles[name])}{improved}")
        return "  ".join(parts)


class _WarningHandler(logging.Handler):
    """Shows what any module warns of; it is in run.log anyway."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Show the message with its secrets blanked."""
        self._show(redact_text(record.getMessage()))


class Progress:
    """How far, how fast, how long still."""

    def __init__(self, title: str, budget: int | None, threshold: float | None, clock: Callable[[], float]) -> None:
        self.title = title
        self.budget = budget
        self.threshold = threshold
        self.phase = ""
        self.steps = 0
        self.epoch = 0
        self._clock = clock
        self._started = clock()
        self._samples: deque[tuple[float, int]] = deque(maxlen=RATE_WINDOW)

    def advance(self, steps: int, epoch: int) -> None:
        """Take the counters and a sample for the speed."""
        self.steps, self.epoch = steps, epoch
        self._samples.append((self._clock(), self.steps))

    @property
    def rate(self) -> float | None:
        """Steps per second over the newest samples; None until there are two."""
        if len(self._samples) < 2:
            return None
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start) if end > start else None

    @property
    def fraction(self) -> float | None:
        """Share of the budget; None without a budget."""
        return min(1.0, self.steps / self.budget) if self.budget else None

    def text(self) -> str:
        """`42%  42,240/100,000 env steps  25,310/s  epoch 41  eta 0:02`"""
        parts = []
        if self.budget:
            parts += [f"{100 * (self.fraction or 0):3.0f}%", f"{self.steps:,}/{self.budget:,} env steps"]
        else:
            parts.append(f"{self.steps:,} env steps")
        rate = self.rate
        if rate:
            parts.append(f"{rate:,.0f}/s")
        parts.append(f"epoch {self.epoch}")
        if rate and self.budget and self.steps < self.budget:
            parts.append(f"eta {_clock_text((self.budget - self.steps) / rate)}")
        return "  ".join(parts)

    def lines(self, width: int, ascii_only: bool) -> list[list[Segment]]:
        """The head of the screen: what runs, and the bar."""
        goal = f"  goal {self.threshold:g}" if self.threshold is not None else ""
        elapsed = _clock_text(self._clock() - self._started)
        room = width - len(elapsed) - 1
        title, goal = self.title[:room], goal[: max(0, room - len(self.title))]
        phase = f"  {self.phase}"[: max(0, room - len(title) - len(goal))] if self.phase else ""
        gap = " " * max(1, width - len(title) - len(goal) - len(phase) - len(elapsed))
        head = [Segment(title, _TITLE), Segment(goal, _QUIET), Segment(phase, _PHASE), Segment(gap + elapsed, _QUIET)]
        text = self.text()
        bar_width = width - len(text) - 2
        if self.fraction is None or bar_width < 8:
            return [head, [Segment(text[:width])]]
        done = round(self.fraction * bar_width)
        filled, empty = ("#", "-") if ascii_only else ("━", "─")
        bar = [Segment(filled * done, _BAR_DONE), Segment(empty * (bar_width - done), _BAR_LEFT)]
        return [head, [*bar, Segment("  " + text)]]


class _Frame:
    """One picture of the whole, made when rich asks for it, so that it fits the terminal of that moment."""

    def __init__(self, progress: Progress, table: MetricsTable) -> None:
        self.progress = progress
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        ascii_only = options.ascii_only
        head = self.progress.lines(width, ascii_only)
        yield from _joined(head)
        room = console.size.height - len(head) - 2
        for line in self.table.lines(width, room, ascii_only):
            yield Segment.line()
            yield from line


def _alert_lines(alert: Alert) -> Table:
    """The id, the message and the tip, wrapped beside a mark."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    title = Text.assemble((alert.id, "bold red"), (f"  epoch {alert.epoch}, {alert.env_steps:,} env steps", "dim"))
    grid.add_row(Text("!", style="bold red"), title)
    grid.add_row("", Text(alert.message, style="yellow"))
    grid.add_row("", Text.assemble(("tip: ", "bold"), alert.tip))
    return grid


def _joined(lines: list[list[Segment]]) -> RenderResult:
    for index, line in enumerate(lines):
        if index:
            yield Segment.line()
        yield from line
    yield Segment.line()


def _clock_text(seconds: float) -> str:
    """0:42, 12:05, 3:02:10."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
