"""What a bench found: tables for the screen and for Markdown, figures for JSON, and goals that were met or missed."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.engine.source import source_commit

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_PACKAGES = ("torch", "numpy", "gymnasium", "stable-baselines3", "sbx-rl", "skrl", "tianshou")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; the first column is left-aligned, the others hold numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [f"### {self.title}", "", _row(self.columns), _row([":---", *["---:"] * (len(self.columns) - 1)])]
        lines += [_row(row) for row in self.rows]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"

    def print(self, console: Console) -> None:
        """The table on the screen."""
        from rich.table import Table as RichTable

        table = RichTable(title=self.title, caption=self.note or None, title_justify="left", caption_justify="left")
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="right" if index else "left", no_wrap=not index)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


@dataclass(frozen=True, slots=True)
class Check:
    """A figure with the goal that it is held to."""

    name: str
    value: float | None
    goal: float
    at_least: bool = True
    """Whether the goal is a lower bound; else an upper one."""

    @property
    def met(self) -> bool:
        """Whether the figure is there and on the right side of the goal."""
        if self.value is None:
            return False
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def row(self) -> list[str]:
        """The check as a line of a table."""
        sign = "at least" if self.at_least else "at most"
        return [self.name, number(self.value), f"{sign} {self.goal:g}", "yes" if self.met else "NO"]


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a bench."""

    name: str
    tables: list[Table]
    data: dict[str, Any]
    checks: list[Check] = field(default_factory=list)


@dataclass(slots=True)
class BenchReport:
    """Everything a bench measured, and on what."""

    bench: str
    command: str
    sections: list[Section]
    machine: dict[str, Any] = field(default_factory=lambda: describe_machine())
    commit: str | None = field(default_factory=source_commit)
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date().isoformat())

    @property
    def checks(self) -> list[Check]:
        """The checks of all sections."""
        return [check for section in self.sections for check in section.checks]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "bench": self.bench,
            "date": self.date,
            "commit": self.commit,
            "command": self.command,
            "machine": self.machine,
            "sections": {section.name: section.data for section in self.sections},
            "checks": [asdict(check) | {"met": check.met} for check in self.checks],
        }

    def tables(self) -> list[Table]:
        """Tables of all sections, and one of the goals."""
        tables = [table for section in self.sections for table in section.tables]
        if self.checks:
            tables.append(Table("Goals", ["figure", "measured", "goal", "met"], [check.row() for check in self.checks]))
        return tables

    def markdown(self) -> str:
        """The whole report in Markdown: how it was made first, then every table."""
        machine = self.machine
        packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
        head = [
            f"## gymlab bench {self.bench}",
            "",
            f"Written by `{self.command}` on {self.date}, commit {self.commit or 'unknown'}.",
            f"Machine: {machine['cores']} cores, {machine['cpu']}, {machine['memory_gb']:.0f} GB, {machine['system']}, "
            f"Python {machine['python']}, {packages}.",
            "Compare the ratios of one run; absolute rates of two machines, or of two hours on one, do not compare.",
            "",
        ]
        return "\n".join([*head, *(table.markdown() for table in self.tables())])

    def print(self, console: Console) -> None:
        """The whole report on the screen."""
        machine = self.machine
        console.print(
            f"{machine['cores']} cores, {machine['cpu']}, torch {machine['packages'].get('torch', 'missing')}"
        )
        for table in self.tables():
            table.print(console)


def write_markdown(path: Path, report: BenchReport) -> None:
    """Put a report into a Markdown file, in place of an earlier report of the same bench; other benches' stay."""
    begin, end = f"<!-- bench {report.bench} begin -->", f"<!-- bench {report.bench} end -->"
    block = f"{begin}\n{report.markdown()}{end}\n"
    text = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n\n"
    before, found, rest = text.partition(begin)
    if found:
        after = rest.partition(end)[2].removeprefix("\n")
    else:
        before, after = text.rstrip("\n") + "\n\n", ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before + block + after, encoding="utf-8")


def describe_machine() -> dict[str, Any]:
    """Cores, processor, memory and the versions of what was measured."""
    import psutil

    from gymlab.engine.machine import processor_name

    return {
        "cores": os.cpu_count(),
        "cpu": processor_name(),
        "memory_gb": psutil.virtual_memory().total / 2**30,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": dict(_versions(SHOWN_PACKAGES)),
    }


def number(value: float | None, digits: int = 3) -> str:
    """A figure as people read it: three digits, thousands apart; a dash for what could not be measured."""
    if value is None:
        return "–"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def scaled(value: float | None, factor: float) -> float | None:
    """A figure in another unit; None stays None."""
    return None if value is None else value * factor


def percent(value: float | None) -> str:
    """A share: 85%."""
    return "–" if value is None else f"{value:.0%}"


def times(value: float | None) -> str:
    """A ratio: 2.53x."""
    return "–" if value is None else f"{value:.2f}x"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
