"""The live metrics table: histories, sparklines and a layout that always fits the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style

from gymlab.metrics.names import namespace
from gymlab.metrics.styles import MetricStyle, MetricStyles

BLOCKS = "▁▂▃▄▅▆▇█"
IMPROVED = "▲"
ASCII_BLOCKS = "_.-=+*%#"
ASCII_IMPROVED = "^"
HISTORY = 64
NARROWEST_COLUMN = 38
WIDEST_COLUMN = 76
GUTTER = 2

_HEADER = Style.parse("bold cyan")
_NAME = Style.parse("default")
_NAME_BOLD = Style.parse("bold")
_VALUE = Style.parse("default")
_VALUE_BOLD = Style.parse("bold")
_VALUE_HIGHLIGHT = Style.parse("bold yellow")
_IMPROVED = Style.parse("bold green")
_OUT_OF_BOUNDS = Style.parse("bold red")
_SPARK = Style.parse("blue")
_QUIET = Style.parse("dim")


@dataclass(slots=True)
class History:
    """A metric's whole past in at most HISTORY means; when full, neighbours merge and each covers twice as many."""

    means: list[float] = field(default_factory=list)
    span: int = 1
    """Values in one mean."""
    _sum: float = 0.0
    _count: int = 0
    latest: float = math.nan
    best: float = -math.inf
    improved: bool = False
    """Whether the latest value is the best so far."""

    def add(self, value: float) -> None:
        """Take the next value; one that is not finite leaves no trace in the sparkline."""
        self.latest = value
        self.improved = value > self.best
        if self.improved:
            self.best = value
        if not math.isfinite(value):
            return
        self._sum += value
        self._count += 1
        if self._count == self.span:
            self.means.append(self._sum / self._count)
            self._sum, self._count = 0.0, 0
            if len(self.means) >= HISTORY:
                self.means = [(left + right) / 2 for left, right in zip(self.means[::2], self.means[1::2], strict=True)]
                self.span *= 2

    def sparkline(self, width: int, blocks: str = BLOCKS) -> str:
        """The past as at most `width` characters, oldest left."""
        means = self.means if not self._count else [*self.means, self._sum / self._count]
        if not means or width < 1:
            return ""
        if len(means) > width:
            edges = [round(index * len(means) / width) for index in range(width + 1)]
            means = [sum(means[a:b]) / (b - a) for a, b in pairwise(edges)]
        low, high = min(means), max(means)
        if high == low:
            return blocks[len(blocks) // 2 - 1] * len(means)
        scale = (len(blocks) - 1) / (high - low)
        return "".join(blocks[round((mean - low) * scale)] for mean in means)


def format_value(value: float, style: MetricStyle) -> str:
    """A value with its metric's precision; very large and very small ones in exponent form."""
    if not math.isfinite(value):
        return str(value)
    magnitude = abs(value)
    if magnitude >= 1e9 or (value and magnitude < 0.5 * 10.0**-style.precision and style.precision > 0):
        return f"{value:.2e}"
    return f"{value:,.{style.precision}f}"


def within_bounds(value: float, style: MetricStyle) -> bool:
    """Whether a value is finite and between the metric's bounds."""
    if not math.isfinite(value):
        return False
    return (style.min is None or value >= style.min) and (style.max is None or value <= style.max)


def pack(section_sizes: Sequence[int], columns: int) -> tuple[int, list[int]]:
    """Put sections, in order and whole, into columns: the least height, and the column of each section."""
    height = max(section_sizes, default=0)
    while True:
        column, used, places = 0, 0, []
        for size in section_sizes:
            gap = 1 if used else 0
            if used + gap + size > height:
                column, used, gap = column + 1, 0, 0
            used += gap + size
            places.append(column)
        if column < columns:
            return height, places
        height += 1


class MetricsTable:
    """Metrics by namespace in as many columns as the height asks for; what does not fit is left out by priority."""

    def __init__(self, styles: MetricStyles) -> None:
        self.styles = styles
        self.histories: dict[str, History] = {}
        self._shown: list[str] = []
        self._layout: tuple[tuple[int, int, int], list[list[str | None]], int] | None = None

    def add(self, row: Mapping[str, float]) -> None:
        """Take an epoch's metrics."""
        histories = self.histories
        for name, value in row.items():
            history = histories.get(name)
            if history is None:
                history = histories[name] = History()
                if self.styles[name].show_in_table:
                    self._shown.append(name)
                    self._shown.sort(key=self.styles.rank)
            history.add(value)

    def lines(self, width: int, height: int, ascii_only: bool = False) -> Iterable[list[Segment]]:
        """The table as lines of segments, at most `height` of them and none wider than `width`."""
        columns, hidden = self._columns(width, height)
        if not columns:
            return
        cell_width = min(WIDEST_COLUMN, (width - GUTTER * (len(columns) - 1)) // len(columns))
        for index in range(max(len(column) for column in columns)):
            line: list[Segment] = []
            for place, column in enumerate(columns):
                entry = column[index] if index < len(column) else None
                last = place == len(columns) - 1
                line += self._cell(entry, cell_width, ascii_only)
                if not last:
                    line.append(Segment(" " * GUTTER))
            yield line
        if hidden:
            yield [Segment(f"{hidden} more metrics in metrics.csv"[:width], _QUIET)]

    def _columns(self, width: int, height: int) -> tuple[list[list[str | None]], int]:
        """Entries of each column (a header begins with a space, None is a gap) and how many metrics found no place."""
        key = (width, height, len(self._shown))
        if self._layout is not None and self._layout[0] == key:
            return self._layout[1], self._layout[2]
        most = max(1, (width + GUTTER) // (NARROWEST_COLUMN + GUTTER))
        shown = list(self._shown)
        while shown:
            sections = _sections(shown)
            sizes = [1 + len(names) for names in sections.values()]
            room = height - (len(shown) < len(self._shown))
            places = next(
                (places for count in range(1, most + 1) for taken, places in [pack(sizes, count)] if taken <= room),
                None,
            )
            if places is not None:
                columns = _arrange(sections, places)
                self._layout = (key, columns, len(self._shown) - len(shown))
                return columns, self._layout[2]
            shown.pop()
        return [], len(self._shown)

    def _cell(self, entry: str | None, width: int, ascii_only: bool) -> list[Segment]:
        if entry is None:
            return [Segment(" " * width)]
        if entry.startswith(" "):
            return [Segment(_fit(entry.strip(), width), _HEADER)]
        style = self.styles[entry]
        history = self.histories[entry]
        value_width = 10
        name_width = min(28, max(20, width // 2 - 6), max(0, width - value_width - 3))
        spark_width = max(0, width - name_width - value_width - 3)
        name = entry[len(namespace(entry)) + 1 :] or entry
        mark, value_style = self._mark(history, style, ASCII_IMPROVED if ascii_only else IMPROVED)
        sparkline = history.sparkline(spark_width, ASCII_BLOCKS if ascii_only else BLOCKS)
        return [
            Segment(" " + _fit_tail(name, name_width - 1), _NAME_BOLD if style.bold else _NAME),
            Segment(_fit_value(history.latest, style, value_width), value_style),
            Segment(f" {mark} ", value_style),
            Segment(sparkline.ljust(spark_width), _SPARK),
        ]

    @staticmethod
    def _mark(history: History, style: MetricStyle, improved: str) -> tuple[str, Style]:
        if not within_bounds(history.latest, style):
            return "!", _OUT_OF_BOUNDS
        if style.highlight:
            return (improved, _IMPROVED) if history.improved else (" ", _VALUE_HIGHLIGHT)
        return " ", _VALUE_BOLD if style.bold else _VALUE


def _sections(names: Sequence[str]) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for name in names:
        sections.setdefault(namespace(name), []).append(name)
    return sections


def _arrange(sections: Mapping[str, list[str]], places: Sequence[int]) -> list[list[str | None]]:
    columns: list[list[str | None]] = [[] for _ in range(max(places) + 1)]
    for (title, names), place in zip(sections.items(), places, strict=True):
        column = columns[place]
        column += [None] if column else []
        column += [f" {title}", *names]
    return columns


def _fit(text: str, width: int) -> str:
    return text[:width].ljust(width)


def _fit_value(value: float, style: MetricStyle, width: int) -> str:
    """A value in its width; never cut, since half a number is a wrong one."""
    text = format_value(value, style)
    return (text if len(text) <= width else f"{value:.3e}").rjust(width)


def _fit_tail(name: str, width: int) -> str:
    """A name in its width; of one that is too long the end is kept, which says more than the beginning."""
    return name.ljust(width) if len(name) <= width else ".." + name[len(name) - width + 2 :]
